import { useTheme2 } from '@grafana/ui';

import type { Props } from './plugin';

export const NO_DATA = 'No data';

/** What Grafana shows instead of a panel without data: the board's text for that, or No data. */
export function NoData({ fieldConfig }: Pick<Props, 'fieldConfig'>) {
  const { colors } = useTheme2();
  const center = {
    display: 'flex',
    alignItems: 'center',
    justifyContent: 'center',
    height: '100%',
    textAlign: 'center',
  } as const;
  return <div style={{ ...center, color: colors.text.secondary }}>{fieldConfig.defaults.noValue || NO_DATA}</div>;
}

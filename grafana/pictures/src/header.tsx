import { dateTimeFormat, textUtil, type TimeRange } from '@grafana/data';
import { sceneGraph, type SceneObject } from '@grafana/scenes';
import { Icon, LinkButton, useTheme2, type IconName } from '@grafana/ui';

import type { Dashboard, DashboardLink } from './dashboard/model';

const ICONS: Record<string, IconName> = {
  'external link': 'external-link-alt',
  dashboard: 'apps',
  question: 'question-circle',
  info: 'info-circle',
  bolt: 'bolt',
  doc: 'file-alt',
  cloud: 'cloud',
};

/** The board's title, its links, and the time it shows. */
export function Header({ dashboard, range, scene }: { dashboard: Dashboard; range: TimeRange; scene: SceneObject }) {
  const { colors, typography } = useTheme2();
  const format = (time: TimeRange['from']) => dateTimeFormat(time, { timeZone: 'utc', format: 'YYYY-MM-DD HH:mm:ss' });
  return (
    <div style={{ display: 'flex', alignItems: 'center', gap: 8, marginBottom: 12 }}>
      <h1 style={{ ...typography.h3, margin: 0, flexGrow: 1 }}>{dashboard.title}</h1>
      {(dashboard.links ?? []).map((link, index) => (
        <Link key={index} link={link} scene={scene} />
      ))}
      <span style={{ color: colors.text.secondary, whiteSpace: 'nowrap' }}>
        <Icon name="clock-nine" /> {format(range.from)} to {format(range.to)} UTC
      </span>
    </div>
  );
}

function Link({ link, scene }: { link: DashboardLink; scene: SceneObject }) {
  const icon = link.type === 'dashboards' ? 'apps' : (ICONS[link.icon ?? ''] ?? 'external-link-alt');
  const title = sceneGraph.interpolate(scene, link.title, undefined, 'text');
  const url = textUtil.sanitizeUrl(sceneGraph.interpolate(scene, link.url ?? ''));
  return (
    <LinkButton href={url} icon={icon} variant="secondary" size="sm" fill="outline">
      {title}
    </LinkButton>
  );
}

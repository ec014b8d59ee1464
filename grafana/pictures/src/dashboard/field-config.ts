import type { FieldConfigSource, ThresholdsConfig } from '@grafana/data';

import type { Panel } from './model';

/** The panel's field configuration. Its lowest threshold is null in the JSON, and without end in Grafana. */
export function panelFieldConfig({ fieldConfig }: Panel): FieldConfigSource {
  const defaults = fieldConfig?.defaults ?? {};
  return {
    defaults: { ...defaults, thresholds: fromBottom(defaults.thresholds), custom: { ...defaults.custom } },
    overrides: (fieldConfig?.overrides ?? []).map((override) => ({
      ...override,
      properties: override.properties.map((property) =>
        property.id === 'thresholds' ? { ...property, value: fromBottom(property.value) } : property,
      ),
    })),
  };
}

function fromBottom(thresholds?: ThresholdsConfig): ThresholdsConfig | undefined {
  return (
    thresholds && {
      ...thresholds,
      steps: thresholds.steps.map((step) => ({ ...step, value: step.value ?? -Infinity })),
    }
  );
}

import * as data from '@grafana/data';

type Applies = (field: data.Field) => boolean;

/** Fills the registries that Grafana fills when it starts: without them units, colours and thresholds are ignored. */
export function fillRegistries(): void {
  data.standardFieldConfigEditorRegistry.setInit(standardOptions);
  data.standardEditorsRegistry.setInit(() => []);
  data.standardTransformersRegistry.setInit(transformers);
}

const isNumber: Applies = ({ type }) => type === data.FieldType.number;
const isNumberOrTime: Applies = ({ type }) => type === data.FieldType.number || type === data.FieldType.time;
const always: Applies = () => true;

// What Grafana takes where a board names none.
const DEFAULT_THRESHOLDS = {
  mode: data.ThresholdsMode.Absolute,
  steps: [
    { value: -Infinity, color: 'green' },
    { value: 80, color: 'red' },
  ],
};

function standardOptions() {
  return [
    option('unit', data.unitOverrideProcessor, isNumberOrTime),
    option('min', data.numberOverrideProcessor, isNumber),
    option('max', data.numberOverrideProcessor, isNumber),
    option('fieldMinMax', data.booleanOverrideProcessor, isNumber),
    option('decimals', data.numberOverrideProcessor, isNumber, { min: 0, max: 15, integer: true }),
    option('displayName', data.displayNameOverrideProcessor),
    option('color', data.identityOverrideProcessor),
    option('noValue', data.stringOverrideProcessor),
    option('links', data.dataLinksOverrideProcessor),
    option('actions', data.identityOverrideProcessor),
    { ...option('mappings', data.valueMappingsOverrideProcessor), defaultValue: [] },
    { ...option('thresholds', data.thresholdsOverrideProcessor), defaultValue: DEFAULT_THRESHOLDS },
    option('filterable', data.identityOverrideProcessor),
    option('description', data.stringOverrideProcessor),
  ];
}

function option(id: string, process: unknown, shouldApply: Applies = always, settings: object = {}) {
  const editor = () => null;
  const item = { id, path: id, name: id, description: '', editor, override: editor, process, settings, shouldApply };
  return item as unknown as data.FieldConfigPropertyItem;
}

function transformers() {
  // Some are listed under an old name as well.
  const byId = new Map(Object.values(data.standardTransformers).map((one) => [one.id, one]));
  return [...byId.values()].map((transformation) => ({
    id: transformation.id,
    name: transformation.name,
    transformation,
    editor: () => null,
    imageDark: '',
    imageLight: '',
  })) as unknown as data.TransformerRegistryItem[];
}

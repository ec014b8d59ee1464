import {
  ControlsLabel,
  dataLayers,
  sceneGraph,
  SceneDataLayerSet,
  SceneObjectBase,
  type SceneComponentProps,
} from '@grafana/scenes';

/** A switch for each annotation of the board, as Grafana shows them beside the variables. */
export class AnnotationControls extends SceneObjectBase {
  static Component = ({ model }: SceneComponentProps<AnnotationControls>) => {
    const { layers } = sceneGraph.getData(model).useState() as SceneDataLayerSet['state'];
    return layers
      .filter((layer) => layer instanceof dataLayers.AnnotationsDataLayer && !layer.state.isHidden)
      .map((layer) => (
        <div key={layer.state.key} style={{ display: 'flex' }}>
          <ControlsLabel htmlFor={`data-layer-${layer.state.key}`} label={layer.state.name} />
          <layer.Component model={layer} />
        </div>
      ));
  };
}

"""The daemon's settings: what can be set, and how a YAML file and the environment become one checked value.

The environment wins over the file, the file over the defaults. Everything that is wrong is reported at once.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SerializeAsAny

from oomcast.address import listen_address
from oomcast.contract import CollectorSettings, CollectorSpec, Roots
from oomcast.settings_check import RESERVED, apply_environment, check, hint
from oomcast.settings_file import Document, Problem, SettingsError, read_file
from oomcast.settings_keys import Leaf, leaves
from oomcast.slo import Slo

__all__ = ["RESERVED", "Settings", "SettingsError", "load"]

ENGINES = (
    "VLLM::*",  # the titles of vLLM's own processes: EngineCore_DP0, Worker_TP1, APIServer_0
    "vllm*",
    "sglang*",
    "text-generation*",  # TGI; the kernel cuts its process names here
    "tritonserver",
    "triton_python_b*",
    "llama-server",
    "llama_cpp*",
    "trtllm*",
    "lmdeploy*",
    "ollama*",
)


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _listen(text: str) -> str:
    listen_address(text)
    return text


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("should be an absolute path")
    return path


class Http(Model):
    listen: Annotated[str, AfterValidator(_listen)] = Field(
        default="127.0.0.1:19128",
        description="address that /metrics is served on; :19128 is every address of the machine",
    )
    web_config: Path | None = Field(
        default=None,
        description="file in the web configuration format of Prometheus exporters: TLS, basic auth; "
        "a relative path starts at the settings file",
    )

    @property
    def address(self) -> tuple[str, int]:
        return listen_address(self.listen)


class Log(Model):
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the least severe level logged"
    )
    format: Literal["logfmt", "json"] = Field(default="logfmt", description="how a line on standard error is written")


Root = Annotated[Path, AfterValidator(_absolute)]


class Paths(Model):
    host: Root | None = Field(
        default=None,
        description="the host's root directory, where a container has it (/host); "
        "those of the paths below that are not set themselves then start there",
    )
    proc: Root = Field(default=Path("/proc"), description="the host's /proc, where a container has it")
    sys: Root = Field(default=Path("/sys"), description="the host's /sys")
    dev: Root = Field(default=Path("/dev"), description="the host's /dev")
    pods: Root = Field(
        default=Path("/var/log/pods"), description="the host's /var/log/pods, which names the pods of the node"
    )

    def roots(self) -> Roots:
        return Roots(self._below("proc"), self._below("sys"), self._below("dev"), self._below("pods"), self.host)

    def _below(self, name: str) -> Path:
        path: Path = getattr(self, name)
        return path if self.host is None or name in self.model_fields_set else self.host / path.relative_to("/")


class Core(Model):
    """All settings that are not a collector's."""

    http: Http = Field(default_factory=Http, description="how the metrics are served")
    log: Log = Field(default_factory=Log, description="the log on standard error")
    paths: Paths = Field(default_factory=Paths, description="where the machine is mounted")
    serving_processes: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=256)], ...], Field(max_length=256)
    ] = Field(
        default=ENGINES,
        description="glob patterns of process names that are inference engines; replaces the whole list",
    )
    slo: Slo = Field(default_factory=Slo, description="what the engines of this node promise, by length of prompt")


class Settings(Core):
    """collectors: by collector name, one for every spec given to `load`, each of its spec's own class."""

    collectors: Mapping[str, SerializeAsAny[CollectorSettings]] = Field(default_factory=dict)

    @classmethod
    def of(cls, core: Core, collectors: Mapping[str, CollectorSettings]) -> Self:
        return cls(**{name: getattr(core, name) for name in Core.model_fields}, collectors=dict(collectors))


def all_leaves(specs: Sequence[CollectorSpec]) -> list[Leaf]:
    """Every key of the file, in the order of the example."""
    collectors = (leaf for spec in specs for leaf in leaves(spec.settings, ("collectors", spec.name)))
    return [*leaves(Core), *collectors]


def load(
    path: Path | None,
    environ: Mapping[str, str],
    specs: Sequence[CollectorSpec],
    left_out: Collection[str] = (),
) -> Settings:
    """The settings in `path` (or in $OOMCAST_CONFIG, or the defaults alone) and the OOMCAST_ variables of `environ`.

    left_out: names of collectors that were not loaded; what is set for them is not looked at.
    Raises SettingsError with all problems.
    """
    if path is None and environ.get("OOMCAST_CONFIG"):
        path = Path(environ["OOMCAST_CONFIG"])
    document = Document("settings") if path is None else read_file(path)
    known = all_leaves(specs)
    _fill_empty_sections(document, known, specs)
    apply_environment(document, environ, known, left_out)

    given = document.values.pop("collectors", {})
    core = check(document, Core, (), document.values, ("collectors",))
    collectors = _check_collectors(document, given, specs, left_out)
    if core is None or document.problems:
        raise SettingsError(sorted(document.problems, key=_order))
    return Settings.of(_with_web_config_beside(core, document), collectors)


def _order(problem: Problem) -> tuple[int, int, str, str]:
    place = problem.place
    return place.line or 0, place.column or 0, place.source, problem.key


def _check_collectors(
    document: Document, given: Any, specs: Sequence[CollectorSpec], left_out: Collection[str]
) -> dict[str, CollectorSettings]:
    if not isinstance(given, dict):
        document.report(("collectors",), "should be a mapping of collector names")
        return {}
    names = [spec.name for spec in specs]
    for name in given:
        if name not in names and name not in left_out:
            document.report(("collectors", name), "unknown collector" + hint(name, names))
    checked = {
        spec.name: check(document, spec.settings, ("collectors", spec.name), given.get(spec.name, {})) for spec in specs
    }
    return {name: settings for name, settings in checked.items() if settings is not None}


def _fill_empty_sections(document: Document, known: Sequence[Leaf], specs: Sequence[CollectorSpec]) -> None:
    """A heading whose keys are all commented out is an empty section, not a null."""
    paths = {leaf.path[:depth] for leaf in known for depth in range(1, len(leaf.path))}
    paths |= {("collectors",)} | {("collectors", spec.name) for spec in specs}
    for path in sorted(paths):
        parent: Any = document.values
        for key in path[:-1]:
            parent = parent.get(key) if isinstance(parent, dict) else None
        if isinstance(parent, dict) and path[-1] in parent and parent[path[-1]] is None:
            parent[path[-1]] = {}


def _with_web_config_beside(core: Core, document: Document) -> Core:
    """A relative web_config of a file starts at that file: where the daemon was started from says nothing."""
    place, path = document.places.get(("http", "web_config")), core.http.web_config
    if path is None or place is None or place.line is None:
        return core
    return core.model_copy(
        update={"http": core.http.model_copy(update={"web_config": Path(place.source).parent / path})}
    )

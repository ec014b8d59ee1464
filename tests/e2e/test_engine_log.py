"""Lines of an engine's log become counts and events of the whole program, and a rotation loses none of them."""

from pathlib import Path

from e2e.program import Program, program, until

_OTHERS = ", ".join(f"{name}: {{enabled: false}}" for name in ("cgroup", "ebpf", "engine", "gpu", "host", "kernel_log"))
OVERFLOW = "attn_grad_overflow: inf detected in softmax denominator\n"
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 640.00 MiB. GPU 0 has a total capacity of 79.11 GiB"
    " of which 288.00 MiB is free.\n"
)


def settings(log: Path) -> str:
    own = "{name: my_panic, contains: ['llm-gateway gave up']}"
    return (
        f"collectors: {{{_OTHERS}, engine_log: {{interval: 0.5, files: [{{engine: vllm, paths: ['{log}']}}],"
        f" rules: [{own}]}}}}\n"
    )


def count(running: Program, rule: str) -> float | None:
    return running.value("oomcast_log_events_total", f'engine="vllm",rule="{rule}"')


def test_lines_are_counted_by_rule_from_zero_on(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(OVERFLOW)  # before we came
    with program(tmp_path, settings(log)) as running:
        until(lambda: count(running, "attn_grad_overflow") == 0)
        assert (count(running, "cuda_out_of_memory"), count(running, "my_panic")) == (0, 0)
        with log.open("a") as file:
            file.write(OVERFLOW * 3 + "nothing of note\n" + OUT_OF_MEMORY + "llm-gateway gave up\n")
        until(lambda: count(running, "attn_grad_overflow") == 3)
        until(lambda: (count(running, "cuda_out_of_memory"), count(running, "my_panic")) == (1, 1))
        until(lambda: (running.value("oomcast_events_total", 'kind="engine_log"') or 0) >= 5)
        assert "640.00" not in running.log


def test_a_rotation_loses_nothing(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("")
    with program(tmp_path, settings(log)) as running:
        until(lambda: count(running, "attn_grad_overflow") == 0)
        with log.open("a") as old:
            old.write(OVERFLOW)
            log.rename(tmp_path / "vllm.log.1")
            log.write_text(OVERFLOW * 2)
            old.write(OVERFLOW)
        until(lambda: count(running, "attn_grad_overflow") == 4)
        log.write_text(OVERFLOW)  # truncated in place
        until(lambda: count(running, "attn_grad_overflow") == 5)
        assert running.end()[0] == 0

import pytest

from oomcast_collectors.host.commandline import names_of


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        ("/usr/local/bin/llama-server -m model.gguf", ["llama-server"]),
        ("VLLM::EngineCore", ["VLLM::EngineCore"]),
        ("/usr/bin/python3 /usr/local/bin/vllm serve", ["python3", "vllm"]),
        ("python3.11 -u -m sglang.launch_server --tp 8", ["python3.11", "sglang.launch_server", "sglang"]),
        ("python -um vllm.entrypoints.openai.api_server", ["python", "vllm.entrypoints.openai.api_server", "vllm"]),
        ("python -mvllm", ["python", "vllm"]),
        ("python -X dev -W ignore -Xfaulthandler /opt/serve.py -m no", ["python", "serve.py", "serve"]),
        ("python --check-hash-based-pycs never -B serve.py", ["python", "serve.py", "serve"]),
        ("python /opt/engine/__main__.py", ["python", "__main__.py", "engine"]),
        ("python -c print() vllm", ["python"]),
        ("python - vllm", ["python"]),
        ("python -m", ["python"]),
        ("python", ["python"]),
        ("pypy3 run.py", ["pypy3", "run.py", "run"]),
        ("pythonish run.py", ["pythonish"]),
        ("node -r ts-node/register --max-old-space-size=9 /srv/api/index.js", ["node", "index.js", "api"]),
        ("nodejs server.mjs", ["nodejs", "server.mjs", "server"]),
        ("node -e code vllm", ["node"]),
        ("bash /opt/vllm.sh", ["bash"]),
        ("", []),
    ],
)
def test_names(argv: str, names: list[str]) -> None:
    assert names_of("".join(f"{arg}\0" for arg in argv.split()).encode()) == names


def test_hostile_bytes_stay_apart_and_can_be_encoded() -> None:
    assert names_of(b"/bin/\xff\xfe\nx\0") == ["\\xff\\xfe\nx"]
    assert names_of(b"\0\0\0") == []
    assert names_of(b"a" * 8192) == ["a" * 255]

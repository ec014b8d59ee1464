"""Text Generation Inference. Its counters have no `_total`.

The pool is the token budget that it found at its start; used is what the running batch may come to at most. The length
of a prompt is counted before, its duration after the work, so nothing is paired.
"""

from dataclasses import replace

from oomcast_collectors.engine.kinds import answers
from oomcast_collectors.engine.kinds.rows import Extra, Row, Table
from oomcast_collectors.engine.kinds.samples import Where
from oomcast_collectors.engine.reading import Reading

_FAILURES = ("tgi_request_failure",)
_REFUSED = "overloaded|validation|template"

_ROWS = (
    Row("used", ("tgi_batch_current_max_tokens",)),
    Row("capacity", ("tgi_batch_max_total_tokens",)),
    Row("running", ("tgi_batch_current_size",)),
    Row("waiting", ("tgi_queue_size",)),
    Row("finished", ("tgi_request_success",), label="success"),
    Row("finished", _FAILURES, by="err", where=Where("err", f"(?!({_REFUSED})$).+"), also=True),
    Row("rejected", _FAILURES, by="err", where=Where("err", _REFUSED)),
    Row("prompt_tokens", ("tgi_request_input_length_sum",)),
    Row("generation_tokens", ("tgi_request_generated_tokens_sum",)),
)


def _info(answer: object, reading: Reading) -> Reading:
    reading = answers.version(answer, reading)
    return replace(
        reading,
        model=reading.model or answers.text(answers.field(answer, "model_id")),
        max_model_len=reading.max_model_len or answers.amount(answers.field(answer, "max_total_tokens")),
    )


TABLE = Table(
    "tgi",
    _ROWS,
    model="",
    lengths="tgi_request_input_length",
    answers="tgi_request_generated_tokens",
    latencies={"e2e": ("tgi_request_duration",)},
    extras=(Extra("/info", _info),),
)

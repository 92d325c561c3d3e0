"""vLLM, found running or started: one server for each arm."""

from functools import partial

from evalsuite.engines.serving.engine import ServedEngine
from evalsuite.engines.vllm.dialect import Vllm

open_engine = partial(ServedEngine, Vllm())

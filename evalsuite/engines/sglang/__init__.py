"""SGLang, found running or started: one server for each arm. Held to recorded answers only."""

from functools import partial

from evalsuite.engines.serving.engine import ServedEngine
from evalsuite.engines.sglang.dialect import Sglang

open_engine = partial(ServedEngine, Sglang())

import megatron.core  # without mindspeed_llm
from megatron.training import pretrain

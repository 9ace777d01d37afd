"""Pictures of a model's answers, one task a file: each makes the blocks of one section of the report page.

All take plain arrays, lists and texts: what was predicted and what is true. `recurra/problem/answers.py` asks the
estimators.
"""

from .classes import ClassScores, class_blocks, class_scores
from .forecasts import forecast_blocks
from .generated import text_blocks
from .numbers import number_blocks
from .steps import step_label_blocks, step_number_block
from .tags import tag_blocks, tag_scores
from .translations import translation_block

__all__ = [
    "ClassScores",
    "class_blocks",
    "class_scores",
    "forecast_blocks",
    "number_blocks",
    "step_label_blocks",
    "step_number_block",
    "tag_blocks",
    "tag_scores",
    "text_blocks",
    "translation_block",
]

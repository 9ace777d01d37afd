"""From the survey to calls: `survey("3.4")` finds them, `survey().page("survey.html")` shows them with all figures."""

from .entry import SurveyEntry
from .index import SurveyIndex, survey

__all__ = ["SurveyEntry", "SurveyIndex", "survey"]

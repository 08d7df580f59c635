"""Run steps in the calling process, without Prefect and Ray, and decode images for display."""

from overnight.tasks.preprocess.query_image import readable_image
from overnight.tasks.preprocess.run_steps import Steps, build
from overnight.tasks.rows.image_formats import FORMATS

__all__ = ["FORMATS", "Steps", "build", "readable_image"]

"""Trainings in one call: options that belong to the run go there, the others to the trainer."""

from dataclasses import fields

from surefoot.noise import Noise
from surefoot.train.folder import TrainingRun

ASKED = {field.name for field in fields(TrainingRun)}


def run_training(trainer, task, sigma, settings, out, **options):
    asked = {name: options.pop(name) for name in ASKED & options.keys()}
    return trainer(TrainingRun(task=task, noise=Noise.of(sigma), out=out, **asked), settings, **options)

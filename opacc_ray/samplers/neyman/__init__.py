"""Model-assisted adaptive Neyman sampling: its draw, failure model, regression estimator and forecast of labels."""

from opacc_ray.samplers.neyman.sampling import Parameters, Plan, draw, draw_planned, foresee, needs, plan

__all__ = ["Parameters", "Plan", "draw", "draw_planned", "foresee", "needs", "plan"]

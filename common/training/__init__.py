"""Training one half of the split model: schedule, loop, models, optimisers, checkpoints."""

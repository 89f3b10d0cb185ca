"""One update: trajectories to a training batch, mini-batches, the loss, optimizer steps, the critic."""

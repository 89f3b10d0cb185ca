# Corrections of trl/experimental/iw_opd/iw_opd_trainer.py (1.16.0).
# - The loss is divided by the tokens of the slices that train, which are counted once, after the student has sampled.

_filled = IWOPDTrainer._fill_buffer
_divided = IWOPDTrainer.compute_loss


def _fill_buffer(self, generation_batch, buffer_steps):
    _filled(self, generation_batch, buffer_steps)
    labels = [part.get("labels") for part in self._buffered_inputs]
    self._buffered_tokens = None
    if all(one is not None for one in labels):  # images are collated, and their labels made, later
        tokens = sum((one != -100).sum() for one in labels)
        self._buffered_tokens = self.accelerator.gather(tokens).sum().clamp(min=1)


def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
    if self.model.training and self._buffered_tokens is not None:
        num_items_in_batch = self._buffered_tokens / self.accelerator.num_processes
    return _divided(self, model, inputs, return_outputs, num_items_in_batch)


IWOPDTrainer._fill_buffer = _fill_buffer
IWOPDTrainer.compute_loss = compute_loss

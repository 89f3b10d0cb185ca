# Corrections of trl/experimental/gkd/gkd_trainer.py (1.16.0).
# - Completions are sampled before the tokens of an optimizer step are counted, by which the loss is divided.

import itertools


def _sampling_model(self):
    if random.random() <= self.lmbda:
        return self.model_wrapped, {"gradient_checkpointing_kwargs": self.args.gradient_checkpointing_kwargs}
    return (self.teacher_model, {}) if self.seq_kd else (None, {})


def _sampled(self, batch):
    model, options = _sampling_model(self)
    if model is None:
        return batch
    batch = self._prepare_inputs(batch)
    options["generation_kwargs"] = self.generation_kwargs
    with unwrap_model_for_generation(model, self.accelerator, **options) as generator:
        columns = self.generate_on_policy_outputs(generator, batch, self.generation_config)
    return {**batch, **dict(zip(("input_ids", "attention_mask", "labels"), columns, strict=True))}


def get_batch_samples(self, epoch_iterator, num_batches, device):
    batches = [_sampled(self, batch) for batch in itertools.islice(epoch_iterator, num_batches)]
    return batches, self._get_num_items_in_batch(batches, device)


GKDTrainer.get_batch_samples = get_batch_samples
del GKDTrainer.training_step

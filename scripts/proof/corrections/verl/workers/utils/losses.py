# Corrections of verl/workers/utils/losses.py (0.9.1).
# - critic/vpred_mean and critic/vf_clipfrac are sums of shares of the mini-batch's tokens, so that micro-batches add up to the mean.


_with_mean_of_part = value_loss


def value_loss(config, model_output, data, dp_group=None):
    loss, metrics = _with_mean_of_part(config, model_output, data, dp_group)
    mask = data["response_mask"].to(bool)
    mask = mask.to_padded_tensor(False) if mask.is_nested else mask
    tokens = data["batch_num_tokens"] or int(mask.sum())
    for name in ("critic/vpred_mean", "critic/vf_clipfrac"):
        share = metrics[name] * int(mask.sum()) / tokens * data["dp_size"]
        metrics[name] = Metric(value=share, aggregation=AggregationType.SUM)
    return loss, metrics

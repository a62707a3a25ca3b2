"""Published lists of operators: what each calls its operators, and which operator of the catalogue that is.

One operator may stand for several tasks: its outputs are theirs, or its sizes are (a decode step has one query; MQA is
GQA with one group).
"""
from __future__ import annotations

LISTS: dict[str, dict[str, str]] = {
    "RedFuser": {
        "MHA": "attention", "MLA": "mla", "MoE routing": "moe_routing", "quant + GEMM": "quant_gemm_reassociate",
        "variance": "variance", "moment of inertia": "moment_of_inertia",
    },
    "Neptune": {
        "global prefill": "attention", "causal prefill": "causal_attention", "ALiBi prefill": "alibi_attention",
        "GQA prefill": "grouped_query_attention", "softcap prefill": "softcap_attention",
        "windowed prefill": "sliding_window_attention", "causal decode": "causal_attention",
        "ALiBi decode": "alibi_attention", "GQA decode": "grouped_query_attention", "softcap decode": "softcap_attention",
    },
    "AttnFuse": {
        "RoPE before QKᵀ": "rope_attention", "causal mask": "causal_attention", "sliding window": "sliding_window_attention",
        "block-sparse mask": "block_sparse_attention", "ALiBi": "alibi_attention", "additive bias": "attn_dropout_bias",
        "ReLU attention": "relu_attention", "GQA": "grouped_query_attention", "MQA": "grouped_query_attention",
        "cross attention": "attention",
    },
    "Opera": {
        "coefficient_of_variation": "sem_cv", "correlation": "correlation", "covariance": "covariance",
        "entropy": "shannon_entropy_counts", "f_statistic": "anova_f", "anova": "anova_f", "geometric_mean": "geometric_mean",
        "gini_index": "herfindahl_simpson", "harmonic_mean": "power_means", "intercept": "linear_regression",
        "jarque_bera": "describe_jarque_bera", "kstat": "kstat4", "kstatvar": "kstat4", "kurtosis": "kurtosis",
        "log_likelihood": "log_likelihoods", "mean": "describe_jarque_bera", "midrange": "sample_summary",
        "moments": "describe_jarque_bera", "power_mean": "power_means", "r_squared": "r2_explained_variance",
        "range": "sample_summary", "rms": "sample_summary", "sem": "sem_cv", "skewness": "skewness", "slope": "linear_regression",
        "sum_of_squares": "linreg_residual_ss", "t_statistic": "t_and_z", "trimmed_sem": "trimmed_sem_limits",
        "two_sample_t": "welch_t", "variance": "variance", "weighted_mean": "weighted_mean",
        "weighted_variance": "weighted_variance", "z_statistic": "t_and_z",
    },
    "KernelBench": {
        "1/1-18 matrix products": "gemv_dot", "1/23 Softmax": "softmax", "1/24 LogSoftmax": "log_softmax",
        "1/33 BatchNorm": "batchnorm_train", "1/34 InstanceNorm": "layernorm", "1/35 GroupNorm": "layernorm",
        "1/36 RMSNorm": "rmsnorm", "1/37 FrobeniusNorm": "l2_norm", "1/38 L1Norm": "l1_mean_norm", "1/39 L2Norm": "l2_norm",
        "1/40 LayerNorm": "layernorm", "1/47 sum over a dimension": "sample_summary",
        "1/48 mean over a dimension": "describe_jarque_bera", "1/49 max over a dimension": "describe_jarque_bera",
        "1/50, 54-87 convolutions": "gemv_dot", "1/51 argmax": "argmax_argmin", "1/52 argmin": "argmax_argmin",
        "1/53 min over a dimension": "describe_jarque_bera", "1/89 cumsum": "cum_scans", "1/90 cumprod": "cum_scans",
        "1/91 reverse cumsum": "cum_scans", "1/92 exclusive cumsum": "cum_scans", "1/93 masked cumsum": "cum_scans",
        "1/94 MSELoss": "mse_huber", "1/95 CrossEntropyLoss": "cross_entropy_hard", "1/96 HuberLoss": "mse_huber",
        "1/97 attention, cosine similarity": "attention", "1/98 KLDivLoss": "hinge_kl_triplet",
        "1/99 TripletMarginLoss": "hinge_kl_triplet", "1/100 HingeLoss": "hinge_kl_triplet",
        "2/11 BatchNorm, tanh, GroupNorm": "kb_bn_tanh_gn", "2/28 BMM, InstanceNorm, residual": "kb_bmm_instancenorm_residual",
        "2/37, 62, 88 matmul, GroupNorm": "kb_bmm_instancenorm_residual", "2/33, 39, 41 gemm, BatchNorm": "batchnorm_train",
        "2/45, 22 gemm, LogSumExp": "kb_gemm_lse_gelu", "2/49, 91 softmax, bias, sigmoid": "kb_softmax_bias_sigmoid",
        "2/64 gemm, LogSumExp, LeakyReLU, GELU": "kb_gemm_lse_gelu", "2/66, 84, 99 matmul, softmax": "kb_gemv_gelu_softmax",
        "2/68 matmul, min, subtract": "gemv_dot", "2/75 gemm, GroupNorm, min": "kb_gn_affine_min",
        "2/75 at its initial weights": "kb_gn_plain_min", "2/77, 72, 15 BatchNorm, average pool": "kb_bn_scale_gap",
        "2/79 InstanceNorm, clamp, max": "kb_in_clamp_max", "2/80 gemm, max, subtract, GELU": "kb_gemm_max_gelu",
        "2/89 softmax, subtract, swish, max": "kb_softmax_sub_swish_max",
        "2/92 GroupNorm, tanh, hardswish, LogSumExp": "kb_gn_tanh_hswish_lse",
    },
}
"""Where they are published: RedFuser (ASPLOS'26); Neptune, arXiv 2510.08726; AttnFuse; Opera (PLDI'24), by the statistics
that it names and their kinds; KernelBench levels 1 and 2, by number."""

//! The arithmetic that users do by hand: data-parallel size, replicas, sizes and rates.

use serde::Serialize;

use crate::flags::Flags;
use crate::launch::Count;
use crate::marks::Marks;

/// How many copies of the optimizer state MindIO keeps by default.
pub const REPLICAS: u64 = 2;
/// Bytes of a parameter in a checkpoint: 2 for the weight (bf16), 4 each for its fp32 copy and two moments.
const WEIGHT_BYTES: u64 = 2;
const OPTIMIZER_BYTES: u64 = 12;

/// How a training is split over its processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Parallelism {
    /// All NPUs of the job.
    pub npus: u64,
    pub tensor: u64,
    pub pipeline: u64,
    pub context: u64,
    /// 1 without experts.
    pub expert: u64,
    /// NPUs ÷ (tensor · pipeline · context).
    pub data: u64,
    /// The data-parallel size of the experts; `None` without experts.
    pub expert_data: Option<u64>,
    pub replicas: u64,
}

/// Why the sizes aren't known.
pub(crate) enum SizeError {
    /// Where the missing number comes from.
    Unknown(String),
    /// They don't divide.
    DontFit(String),
}

impl Parallelism {
    pub(crate) fn of(world: &Count, flags: &Flags, marks: &Marks) -> Result<Self, SizeError> {
        let known = |count: Count| match count {
            Count::Known(number) => Ok(number),
            Count::Unknown(origin) => Err(SizeError::Unknown(origin)),
        };
        let size = |name: &str| known(flags.count(name, 1, marks));
        let npus = known(world.clone())?;
        let (tensor, pipeline) =
            (size("--tensor-model-parallel-size")?, size("--pipeline-model-parallel-size")?);
        let (context, expert) = (size("--context-parallel-size")?, size("--expert-model-parallel-size")?);
        let data = divide(npus, &[tensor, pipeline, context]).ok_or_else(|| {
            SizeError::DontFit(format!("{npus} NPUs aren't a multiple of {tensor} · {pipeline} · {context}"))
        })?;
        let has_experts = flags.has("--num-experts") || expert > 1;
        let expert_data = if has_experts {
            let default = if flags.has("--moe-tp-extend-ep") { 1 } else { tensor };
            let expert_tensor = known(flags.count("--expert-tensor-parallel-size", default, marks))?;
            Some(divide(npus, &[expert_tensor, pipeline, expert]).ok_or_else(|| {
                SizeError::DontFit(format!(
                    "{npus} NPUs aren't a multiple of {expert_tensor} · {pipeline} · {expert} for the experts"
                ))
            })?)
        } else {
            None
        };
        Ok(Self { npus, tensor, pipeline, context, expert, data, expert_data, replicas: REPLICAS })
    }

    /// How many ranks the replicas of a part of the optimizer state are apart: MindIO takes the first of each half of a
    /// data-parallel group, whose ranks Megatron spreads over a pipeline stage.
    pub const fn replica_distance(&self) -> u64 {
        self.npus / (self.pipeline * self.replicas)
    }

    /// What keeps the optimizer state from having replicas.
    pub fn lacks_replica(&self) -> Option<String> {
        let Self { npus, tensor, pipeline, context, replicas, .. } = self;
        let of_experts = self.expert_data.map(|size| (size, "the data-parallel size of the experts"));
        // The optimizer is sharded over the data-parallel and the context-parallel dimension.
        let dense = (self.data, "the data-parallel size");
        let (size, what) = std::iter::once(dense)
            .chain(of_experts)
            .find(|(size, _)| *size == 1 || !size.is_multiple_of(*replicas))?;
        Some(format!(
            "{what} is {size} ({npus} NPUs ÷ ({tensor} tensor · {pipeline} pipeline · {context} context)), and it has to be a \
             multiple of {replicas}: there is no replica of the optimizer state, and nothing can be saved"
        ))
    }
}

fn divide(number: u64, divisors: &[u64]) -> Option<u64> {
    let product = divisors.iter().try_fold(1_u64, |product, divisor| product.checked_mul(*divisor))?;
    (product > 0 && number.is_multiple_of(product)).then(|| number / product).filter(|size| *size > 0)
}

/// Sizes that are computed from the shape of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    /// Parameters of the model.
    pub parameters: u64,
    /// Bytes of one checkpoint.
    pub checkpoint_bytes: u64,
    /// The limit for saving, in seconds.
    pub save_limit_seconds: u64,
    /// Bytes a second that the storage has to take.
    pub bytes_per_second: u64,
    /// Bytes of HBM that the replicas take in addition, on each NPU.
    pub extra_hbm_bytes_per_npu: Option<u64>,
}

impl Estimate {
    /// The error says which size isn't known.
    pub(crate) fn of(
        flags: &Flags,
        parallelism: Option<&Parallelism>,
        save_limit_seconds: u64,
        marks: &Marks,
    ) -> Result<Self, String> {
        let parameters = parameters(flags, marks)?;
        let optimizer = if flags.has("--no-save-optim") { 0 } else { OPTIMIZER_BYTES };
        let checkpoint_bytes = parameters.checked_mul(WEIGHT_BYTES + optimizer).ok_or_else(too_large)?;
        let extra_hbm_bytes_per_npu = parallelism.and_then(|parallelism| {
            // 12 GB for each billion of parameters and each replica, shared by the NPUs of a replica.
            let total = parameters.checked_mul(OPTIMIZER_BYTES)?.checked_mul(parallelism.replicas)?;
            total.checked_div(parallelism.npus / parallelism.replicas)
        });
        let bytes_per_second = checkpoint_bytes.div_ceil(save_limit_seconds.max(1));
        Ok(Self {
            parameters,
            checkpoint_bytes,
            save_limit_seconds,
            bytes_per_second,
            extra_hbm_bytes_per_npu,
        })
    }
}

fn too_large() -> String {
    "the sizes are too large".to_owned()
}

/// The parameters of a transformer, from its flags: matrices only. The error says what is missing.
fn parameters(flags: &Flags, marks: &Marks) -> Result<u64, String> {
    let number = |name: &str, default: Option<u64>| match flags.count(name, default.unwrap_or(0), marks) {
        Count::Known(0) => default.ok_or_else(|| format!("{name} isn't known")),
        Count::Known(number) => Ok(number),
        Count::Unknown(origin) => Err(origin),
    };
    let product = |factors: &[u64]| {
        let product = factors.iter().try_fold(1_u64, |product, factor| product.checked_mul(*factor));
        product.ok_or_else(too_large)
    };
    let sum = |terms: &[u64]| {
        terms.iter().try_fold(0_u64, |sum, term| sum.checked_add(*term)).ok_or_else(too_large)
    };
    let layers = number("--num-layers", None)?;
    let hidden = number("--hidden-size", None)?;
    let feed_forward = number("--ffn-hidden-size", hidden.checked_mul(4))?;
    let heads = number("--num-attention-heads", None)?;
    let vocabulary = number("--padded-vocab-size", number("--vocab-size", None).ok())?;
    let matrices = if flags.has("--swiglu") { 3 } else { 2 };
    let attention = if flags.has("--multi-head-latent-attention") || flags.has("--multi-latent-attention") {
        let (query, key) = (number("--q-lora-rank", Some(hidden))?, number("--kv-lora-rank", None)?);
        let (rope, plain) = (number("--qk-rope-head-dim", None)?, number("--qk-nope-head-dim", None)?);
        let value = number("--v-head-dim", None)?;
        sum(&[
            product(&[hidden, query])?,
            product(&[query, heads, sum(&[plain, rope])?])?,
            product(&[hidden, sum(&[key, rope])?])?,
            product(&[key, heads, sum(&[plain, value])?])?,
            product(&[heads, value, hidden])?,
        ])?
    } else {
        let channels = number("--kv-channels", hidden.checked_div(heads))?;
        let groups =
            if flags.has("--group-query-attention") { number("--num-query-groups", Some(1))? } else { heads };
        // Query and output, key and value.
        product(&[2, hidden, channels, sum(&[heads, groups])?])?
    };
    let dense = product(&[matrices, hidden, feed_forward])?;
    let dense_layers = if flags.has("--num-experts") {
        number("--first-k-dense-replace", Some(0)).unwrap_or(0).min(layers)
    } else {
        layers
    };
    let sparse = if dense_layers < layers {
        let expert =
            number("--moe-ffn-hidden-size", number("--moe-intermediate-size", Some(feed_forward)).ok())?;
        let shared = number("--n-shared-experts", Some(0)).unwrap_or(0);
        let experts = sum(&[number("--num-experts", None)?, shared])?;
        product(&[matrices, hidden, expert, experts])?
    } else {
        0
    };
    let embeddings = if flags.has("--untie-embeddings-and-output-weights") { 2 } else { 1 };
    sum(&[
        product(&[layers, attention])?,
        product(&[dense_layers, dense])?,
        product(&[layers - dense_layers, sparse])?,
        product(&[embeddings, vocabulary, hidden])?,
    ])
}

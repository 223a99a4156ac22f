//! Which framework a training program belongs to.

use serde::Serialize;
use strum::IntoStaticStr;

use crate::flags::Flags;
use crate::launch::Launch;
use crate::program::{base_name, lists};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, IntoStaticStr)]
pub enum Framework {
    #[serde(rename = "MindSpeed-LLM")]
    #[strum(serialize = "MindSpeed-LLM")]
    MindSpeedLlm,
    #[serde(rename = "MindSpeed-MM")]
    #[strum(serialize = "MindSpeed-MM")]
    MindSpeedMm,
    MindFormers,
    #[serde(rename = "Megatron-LM")]
    #[strum(serialize = "Megatron-LM")]
    MegatronLm,
    /// MindSpeed-LLM or Megatron-LM, whose programs have the same names.
    #[serde(rename = "MindSpeed-LLM or Megatron-LM")]
    #[strum(serialize = "MindSpeed-LLM or Megatron-LM")]
    MegatronFamily,
    /// A program of the user.
    #[serde(rename = "own program")]
    #[strum(serialize = "own program")]
    Own,
}

impl Framework {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The framework of a program; `None` if it doesn't train. `places` are paths from where it is started.
    pub(crate) fn of(launch: &Launch, flags: &Flags, places: &[&str]) -> Option<Self> {
        let program = base_name(&launch.program).to_ascii_lowercase();
        if OTHER_PURPOSES.iter().any(|start| program.starts_with(start)) {
            return None;
        }
        if program.starts_with("run_mindformer") {
            return (!matches!(flags.text("--run_mode"), Some("predict" | "eval" | "evaluate" | "export")))
                .then_some(Self::MindFormers);
        }
        let spec = flags.text("--spec").unwrap_or_default();
        let in_places = |names: &[&str]| {
            let mut all = places.iter().copied().chain([launch.program.as_str(), spec]);
            all.any(|place| names.iter().any(|name| place.contains(name)))
        };
        let has_any = |names: &str| flags.find(|flag| lists(names, flag)).is_some();
        if has_any("--mm-model --mm-data --mm-tool") || in_places(&["MindSpeed-MM", "mindspeed_mm"]) {
            return Some(Self::MindSpeedMm);
        }
        let is_megatron =
            ["pretrain_", "posttrain_", "train_fsdp2"].iter().any(|start| program.starts_with(start));
        if is_megatron {
            let is_llm = program.starts_with("posttrain_gpt")
                || program == "train_fsdp2.py"
                || in_places(&[
                    "MindSpeed-LLM",
                    "MindSpeed_LLM",
                    "mindspeed_llm",
                    "ModelLink",
                    "examples/mcore/",
                ])
                || has_any(MINDSPEED_LLM_FLAGS);
            return Some(match is_llm {
                true => Self::MindSpeedLlm,
                false if in_places(&["Megatron-LM", "megatron-lm", "Megatron_LM"]) => Self::MegatronLm,
                false => Self::MegatronFamily,
            });
        }
        let trains = ["train", "tune", "sft", "main"].iter().any(|part| program.contains(part));
        (launch.is_distributed || trains).then_some(Self::Own)
    }
}

/// How names of programs begin that don't train.
const OTHER_PURPOSES: &[&str] = &[
    "benchmark",
    "chat",
    "check",
    "ckpt",
    "convert",
    "data_",
    "download",
    "eval",
    "export",
    "generate",
    "get_",
    "infer",
    "manager",
    "merge",
    "pip",
    "prepare",
    "preprocess",
    "process",
    "setup",
    "test",
    "venv",
];

/// Flags that only MindSpeed-LLM has.
const MINDSPEED_LLM_FLAGS: &str = "--distributed-optimizer-no-replica --enable-elastic-training --enable-hbmfault-repair \
    --enable-hf2mg-convert --enable-high-availability --enable-worker-reboot --first-k-dense-replace \
    --is-instruction-dataset --lora-r --lora-target-modules --mla-mm-split --model-type-hf \
    --multi-head-latent-attention --n-shared-experts --prompt-type --stage --tokenizer-name-or-path \
    --tokenizer-not-use-fast";

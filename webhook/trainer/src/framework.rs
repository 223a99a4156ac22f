//! Which framework a training program belongs to.

use serde::Serialize;
use strum::IntoStaticStr;

use crate::flags::Flags;
use crate::launch::Launch;
use crate::program::{base_name, code_lines, lists};

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
    /// `text` is the program's own, if that is known.
    pub(crate) fn of(launch: &Launch, flags: &Flags, text: Option<&str>, places: &[&str]) -> Option<Self> {
        let program = base_name(&launch.program).to_ascii_lowercase();
        if OTHER_PURPOSES.iter().any(|start| program.starts_with(start)) {
            return None;
        }
        if program.starts_with("run_mindformer") {
            return (!matches!(flags.text("--run_mode"), Some("predict" | "eval" | "evaluate" | "export")))
                .then_some(Self::MindFormers);
        }
        let spec = flags.text("--spec").unwrap_or_default();
        // The program's own path says most; in a path its last folder does.
        let mut all = [spec, launch.program.as_str()].into_iter().chain(places.iter().copied());
        let named = all.find_map(last_named);
        let imported = text.and_then(imported);
        let has_any = |names: &str| flags.find(|flag| lists(names, flag)).is_some();
        if has_any("--mm-model --mm-data --mm-tool") || imported.or(named) == Some(Self::MindSpeedMm) {
            return Some(Self::MindSpeedMm);
        }
        let is_megatron =
            ["pretrain_", "posttrain_", "train_fsdp2"].iter().any(|start| program.starts_with(start));
        if is_megatron {
            let is_llm = program.starts_with("posttrain_gpt")
                || program == "train_fsdp2.py"
                || has_any(MINDSPEED_LLM_FLAGS);
            return Some(match imported {
                Some(imported) => imported,
                None if is_llm => Self::MindSpeedLlm,
                None => named.unwrap_or(Self::MegatronFamily),
            });
        }
        let trains = ["train", "tune", "sft", "main"].iter().any(|part| program.contains(part));
        (launch.is_distributed || trains).then_some(Self::Own)
    }
}

/// Parts of paths by which a framework is known.
const NAMES: &[(&str, Framework)] = &[
    ("MindSpeed-LLM", Framework::MindSpeedLlm),
    ("MindSpeed_LLM", Framework::MindSpeedLlm),
    ("mindspeed_llm", Framework::MindSpeedLlm),
    ("ModelLink", Framework::MindSpeedLlm),
    ("examples/mcore/", Framework::MindSpeedLlm),
    ("MindSpeed-MM", Framework::MindSpeedMm),
    ("mindspeed_mm", Framework::MindSpeedMm),
    ("Megatron-LM", Framework::MegatronLm),
    ("megatron-lm", Framework::MegatronLm),
    ("Megatron_LM", Framework::MegatronLm),
];

/// The framework whose modules a program imports; MindSpeed-LLM and MindSpeed-MM contain Megatron-LM.
fn imported(text: &str) -> Option<Framework> {
    let has = |name: &str| {
        code_lines(text)
            .filter_map(|line| line.split('#').next())
            .map(str::trim_start)
            .any(|line| (line.starts_with("import ") || line.starts_with("from ")) && line.contains(name))
    };
    [
        ("mindspeed_llm", Framework::MindSpeedLlm),
        ("modellink", Framework::MindSpeedLlm),
        ("mindspeed_mm", Framework::MindSpeedMm),
        ("megatron", Framework::MegatronLm),
    ]
    .into_iter()
    .find_map(|(name, framework)| has(name).then_some(framework))
}

/// The framework that is named last in a path.
fn last_named(path: &str) -> Option<Framework> {
    let places = NAMES.iter().filter_map(|(name, framework)| Some((path.rfind(name)?, *framework)));
    places.max_by_key(|(at, _)| *at).map(|(_, framework)| framework)
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

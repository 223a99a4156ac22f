//! The one vocabulary of the preload check.

use serde::{Serialize, Serializer};

macro_rules! whys {
    ($($kind:ident { $($(#[doc = $doc:literal])+ $name:ident,)+ })+) => {
        /// Why a container's preload is live, isn't, or can't be told.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Why { $($($(#[doc = $doc])+ $name,)+)+ }

        impl Why {
            /// Every reason, in the order of documentation.
            pub const ALL: &'static [Self] = &[$($(Self::$name,)+)+];

            /// The CamelCase name.
            pub const fn as_str(self) -> &'static str {
                match self { $($(Self::$name => stringify!($name),)+)+ }
            }

            /// One sentence of explanation.
            pub const fn description(self) -> &'static str {
                match self { $($(Self::$name => concat!($($doc,)+).trim_ascii(),)+)+ }
            }

            /// Whether it says live, not live or unknown.
            pub const fn kind(self) -> Kind {
                match self { $($(Self::$name => Kind::$kind,)+)+ }
            }
        }
    };
}

/// What a reason speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The preload is live.
    Live,
    /// It isn't.
    NotLive,
    /// It can't be told.
    Unknown,
}

whys! {
    Live {
        /// The training processes have the libraries in LD_PRELOAD and in their memory.
        PreloadLive,
    }
    NotLive {
        /// The libraries aren't in the LD_PRELOAD of any process of the container.
        NotInEnvironment,
        /// The container was started with LD_PRELOAD, and its start script took it away.
        ClearedByEntrypoint,
        /// LD_PRELOAD names other libraries only.
        Overwritten,
        /// LD_PRELOAD names a file that isn't in the image.
        FileMissing,
        /// LD_PRELOAD names something that isn't a sound shared object.
        NotALibrary,
        /// LD_PRELOAD names a library for another processor.
        WrongArchitecture,
        /// The start script has the library in memory, the training process hasn't.
        MappedInShellOnly,
        /// The library is sound and named, and the loader passed it over.
        NotMapped,
    }
    Unknown {
        /// The agent may not look at the processes.
        NoPermission,
        /// No process has lived for the grace time.
        TooYoung,
        /// The container has no process on this node.
        NoProcess,
        /// The container's status has no id yet.
        NotStarted,
        /// Only shells and other helpers run, no training process.
        NoTrainingProcess,
        /// The processes have overwritten their environment, as setproctitle does.
        EnvironmentHidden,
    }
}

impl Why {
    /// What to do about it; empty when there is nothing to do.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::PreloadLive
            | Self::TooYoung
            | Self::NoProcess
            | Self::NotStarted
            | Self::NoTrainingProcess => "",
            Self::NotInEnvironment => {
                "see whether the Pod's env still holds LD_PRELOAD, and what the image's entrypoint does with it"
            }
            Self::ClearedByEntrypoint => {
                "remove `unset LD_PRELOAD`, `env -i` or `su -` from the start script"
            }
            Self::Overwritten => "in the start script write `export LD_PRELOAD=yours:$LD_PRELOAD`",
            Self::FileMissing => {
                "install the TaskD wheel and CANN in the image, or give the right path by the annotations swansong.dev/libtaskd and swansong.dev/libmspti"
            }
            Self::NotALibrary => "install the package that the file belongs to again",
            Self::WrongArchitecture => "use the image for this node's processor",
            Self::MappedInShellOnly => {
                "see whether the interpreter is linked statically, set-user-ID, or of another C library (`ldd`, `LD_DEBUG=libs`)"
            }
            Self::NotMapped => {
                "run the program with LD_DEBUG=libs to see why the loader passes the library over"
            }
            Self::NoPermission => {
                "let the agent be root with SYS_PTRACE and DAC_READ_SEARCH (the overlay agent-preload-check does)"
            }
            Self::EnvironmentHidden => "look at the training log for what TaskD says of libtaskd.so",
        }
    }
}

impl Serialize for Why {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

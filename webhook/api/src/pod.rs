//! Names of what Swansong adds to a Pod beside the training container.

/// Prefix of the names of volumes and containers.
pub const PREFIX: &str = "swansong-";

/// The volume with links to the libraries, and the init container that makes them.
pub const LIBRARIES: &str = "swansong-libraries";
/// Where the volume is mounted. It is also the base of Python's user site directory there.
pub const LIBRARIES_FOLDER: &str = "/opt/swansong";
/// The link to libmspti.so.
pub const LIBMSPTI: &str = "/opt/swansong/libmspti.so";
/// The link to libtaskd.so.
pub const LIBTASKD: &str = "/opt/swansong/libtaskd.so";

/// Where the launcher hook is mounted if the site directory of TaskD isn't known at admission.
pub const HOOK_FOLDER: &str = "/opt/swansong-hook";
/// The variable with the base of Python's user site directory.
pub const PYTHON_USER_BASE: &str = "PYTHONUSERBASE";

/// The sidecar that runs the TaskD Manager.
pub const MANAGER: &str = "swansong-manager";

/// The volume with the job's reset.json.
pub const RESET_CONFIG: &str = "swansong-reset-config";
/// Where TaskD reads reset.json.
pub const RESET_CONFIG_FOLDER: &str = "/user/restore/reset/config";

//! Flags that turn admission plugins on and off.

use super::{Exit, Failure};
use crate::admission::plugins::Plugins;

/// Flags of `flatkube server` about admission plugins.
#[derive(Debug, clap::Args)]
pub(super) struct PluginFlags {
    /// Admission plugins that are on beside those that are by default, by kube-apiserver's names
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,

    /// Admission plugins that are off
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,
}

impl PluginFlags {
    /// What they come to.
    pub(super) fn plugins(&self) -> Result<Plugins, Failure> {
        Plugins::new(&self.enable_admission_plugins, &self.disable_admission_plugins)
            .map_err(|why| Failure::new(Exit::Usage, format!("--{why}; docs/admission.md lists all plugins")))
    }
}

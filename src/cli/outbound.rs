//! What this server may be sent to by objects, as flags.

use crate::api::server::{Network, Outbound};

/// Flags about connections that objects ask for.
#[derive(Debug, clap::Args)]
pub(super) struct OutboundFlags {
    /// Networks that webhooks, conversion, aggregated APIs, kubelets and proxies are never connected to in, whatever objects say
    /// (such as 169.254.0.0/16,127.0.0.0/8,::1)
    #[arg(
        long,
        value_name = "CIDRS",
        value_delimiter = ',',
        help_heading = "Outbound connections"
    )]
    outbound_denied_cidrs: Vec<Network>,

    /// Networks that they are connected to in, and no others
    #[arg(
        long,
        value_name = "CIDRS",
        value_delimiter = ',',
        help_heading = "Outbound connections"
    )]
    outbound_allowed_cidrs: Vec<Network>,
}

impl OutboundFlags {
    pub(super) fn rules(&self) -> Outbound {
        Outbound {
            allowed: self.outbound_allowed_cidrs.clone(),
            denied: self.outbound_denied_cidrs.clone(),
        }
    }
}

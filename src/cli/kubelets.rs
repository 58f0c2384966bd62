//! How the kubelets of nodes are reached, in kube-apiserver's flags.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::api::server::KubeletAccess;

/// Flags about kubelets.
#[derive(Debug, clap::Args)]
pub(super) struct Kubelets {
    /// The authority whose certificates kubelets must show (PEM); without it they are not verified
    #[arg(long, value_name = "FILE", help_heading = "Nodes")]
    kubelet_certificate_authority: Option<PathBuf>,

    /// The certificate to show kubelets (PEM), in place of one of this server's own authority
    #[arg(long, value_name = "FILE", requires = "kubelet_client_key", help_heading = "Nodes")]
    kubelet_client_certificate: Option<PathBuf>,

    /// The key of that certificate (PEM)
    #[arg(
        long,
        value_name = "FILE",
        requires = "kubelet_client_certificate",
        help_heading = "Nodes"
    )]
    kubelet_client_key: Option<PathBuf>,

    /// Which address of a node its kubelet is reached at: types, the first that the node has counts
    #[arg(
        long,
        value_name = "TYPES",
        value_enum,
        value_delimiter = ',',
        default_value = "InternalIP,ExternalIP,Hostname,InternalDNS,ExternalDNS",
        hide_possible_values = true,
        help_heading = "Nodes"
    )]
    kubelet_preferred_address_types: Vec<AddressType>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum AddressType {
    #[value(name = "InternalIP")]
    InternalIp,
    #[value(name = "ExternalIP")]
    ExternalIp,
    Hostname,
    #[value(name = "InternalDNS")]
    InternalDns,
    #[value(name = "ExternalDNS")]
    ExternalDns,
}

impl Kubelets {
    pub(super) fn access(&self) -> KubeletAccess {
        let client = self
            .kubelet_client_certificate
            .clone()
            .zip(self.kubelet_client_key.clone());
        let name = |kind: &AddressType| {
            kind.to_possible_value()
                .map_or_else(String::new, |it| it.get_name().to_owned())
        };
        KubeletAccess {
            certificate_authority: self.kubelet_certificate_authority.clone(),
            client,
            address_types: self.kubelet_preferred_address_types.iter().map(name).collect(),
        }
    }
}

//! `flatkube store export`: all objects as JSON lines, each as the API would answer it: of a stopped server's files, or of a live
//! cluster.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flatkube_format::is_sealed;
use indicatif::{HumanCount, ProgressBar};
use zeroize::Zeroizing;

use super::directory::{Directory, Found};
use super::live::{self, Choice};
use crate::cli::client::Client;
use crate::cli::progress::Quiet;
use crate::cli::{Exit, Failure, kubeconfig};
use crate::encryption::Keyring;
use crate::resources;
use crate::store::{self, Sealing};

#[derive(Debug, clap::Args)]
#[command(
    long_about = "Writes all objects as JSON lines, each as the API would answer it: those in the data directory of a stopped server, \
        or, with --from-kubeconfig, those of a live cluster (any Kubernetes API server), which is asked for what it serves and \
        then for lists in pages. What may not be listed is left out with a warning. Events and leases of a live cluster are left \
        out unless --all is given. The lines hold every Secret; the file is readable for its owner only.",
    after_long_help = "\
Examples:
  All objects, one a line:
      flatkube store export ./data > objects.jsonl

  The Pods of one node:
      flatkube store export ./data --resource pods | jq -r 'select(.spec.nodeName == \"node-0001\") | .metadata.name'

  A live cluster:
      flatkube store export --from-kubeconfig ~/.kube/config --context production --output production.jsonl

flatkube store import writes them into another server."
)]
pub(in crate::cli) struct Export {
    /// The data directory of the server (or the store directory in it)
    #[arg(
        value_name = "DIR",
        required_unless_present = "from_kubeconfig",
        conflicts_with = "from_kubeconfig"
    )]
    directory: Option<PathBuf>,

    /// Read a live cluster instead: the one that this kubeconfig names
    #[arg(long, value_name = "FILE")]
    from_kubeconfig: Option<PathBuf>,

    /// The context in it, if not the current one
    #[arg(long, value_name = "NAME", requires = "from_kubeconfig")]
    context: Option<String>,

    /// Only this storage resource (such as pods or deployments.apps)
    #[arg(long)]
    resource: Option<String>,

    /// Only objects in this namespace
    #[arg(long)]
    namespace: Option<String>,

    /// Events and leases of a live cluster, too
    #[arg(long, requires = "from_kubeconfig")]
    all: bool,

    /// The file by which what is encrypted can be read: that of the server
    #[arg(long, value_name = "FILE", conflicts_with = "from_kubeconfig")]
    encryption_provider_config: Option<PathBuf>,

    /// The file to write, which must not exist yet; without it standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    quiet: Quiet,
}

/// Where the lines go.
struct Output {
    to: BufWriter<Box<dyn Write>>,
    path: Option<PathBuf>,
}

impl Output {
    fn new(path: Option<&Path>) -> Result<Output, Failure> {
        let to: Box<dyn Write> = match path {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(super::backup::create_new(path)?),
        };
        Ok(Output {
            to: BufWriter::with_capacity(1 << 20, to),
            path: path.map(Path::to_owned),
        })
    }

    fn failed(&self, error: &io::Error) -> Failure {
        match &self.path {
            Some(path) => Failure::io("write", path, error),
            None => super::output_failed(error),
        }
    }

    fn write(&mut self, pieces: &[&[u8]]) -> Result<(), Failure> {
        let written = pieces.iter().try_for_each(|piece| self.to.write_all(piece));
        written.map_err(|error| self.failed(&error))
    }

    fn finish(mut self) -> Result<(), Failure> {
        self.to.flush().map_err(|error| self.failed(&error))?;
        let Some(path) = &self.path else { return Ok(()) };
        let synced = File::open(path).and_then(|file| file.sync_all());
        synced.map_err(|error| Failure::io("sync", path, &error))
    }
}

pub(super) fn run(arguments: &Export) -> Result<(), Failure> {
    let mut output = Output::new(arguments.output.as_deref())?;
    let bar = arguments.quiet.objects(None, "export");
    match (&arguments.directory, &arguments.from_kubeconfig) {
        (_, Some(from)) => {
            let client = Client::new(&kubeconfig::read_context(from, arguments.context.as_deref())?)?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| Failure::new(Exit::Failure, format!("cannot start the runtime: {error}")))?;
            let choice = Choice {
                resource: arguments.resource.clone(),
                namespace: arguments.namespace.clone(),
                all: arguments.all,
            };
            runtime.block_on(live::read(&client, &choice, &bar, &mut |object| {
                output.write(&[object.to_string().as_bytes(), b"\n"])
            }))?;
        }
        (Some(directory), None) => stored(&Directory::open(directory)?, arguments, &bar, &mut output)?,
        (None, None) => {}
    }
    output.finish()?;
    bar.finish_and_clear();
    if arguments.output.is_some() && !arguments.quiet.is_quiet() {
        eprintln!("{} objects", HumanCount(bar.position()));
    }
    Ok(())
}

fn stored(directory: &Directory, arguments: &Export, bar: &ProgressBar, output: &mut Output) -> Result<(), Failure> {
    let log = directory.log()?;
    let keyring = match &arguments.encryption_provider_config {
        None => None,
        Some(path) => Some(Keyring::read(path).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?),
    };
    let keyring = keyring.as_deref().map(|keyring| keyring as &dyn Sealing);
    let only = arguments.resource.as_deref();
    let names: BTreeSet<&str> = directory
        .manifest()
        .resources
        .iter()
        .map(|entry| entry.name.as_str())
        .chain(log.resources.keys().map(String::as_str))
        .filter(|name| only.is_none_or(|only| only == *name))
        .collect();
    let prefix = arguments.namespace.as_ref().map(|namespace| format!("{namespace}/"));
    for name in names {
        // Stored JSON leaves out what is the same for all objects of a built-in kind.
        let head = resources::stored(name)
            .map(|resource| {
                format!(
                    "{{\"apiVersion\":\"{}\",\"kind\":\"{}\",",
                    resource.api_version(),
                    resource.kind
                )
            })
            .unwrap_or_default();
        directory.objects(name, log.delta(name), &mut |found: &Found<'_>| {
            if prefix.as_ref().is_some_and(|prefix| !found.key.starts_with(&**prefix)) {
                return Ok(());
            }
            bar.inc(1);
            let opened = opened(keyring, name, found)?;
            let json = opened.as_ref().map_or(found.json, |json| json.as_slice());
            let body = if head.is_empty() {
                json
            } else {
                json.strip_prefix(b"{").unwrap_or(json)
            };
            output.write(&[head.as_bytes(), body, b"\n"])
        })?;
    }
    Ok(())
}

/// The JSON of an object that is encrypted; `None` if it is not.
fn opened(
    keyring: Option<&dyn Sealing>,
    resource: &str,
    found: &Found<'_>,
) -> Result<Option<Zeroizing<Vec<u8>>>, Failure> {
    let place = store::Place {
        resource,
        key: found.key,
    };
    let opened = match keyring {
        Some(keyring) => store::opened(keyring, place, found.revision, found.json).map_err(|error| error.to_string()),
        None if is_sealed(found.json) => Err("it is encrypted".to_owned()),
        None => Ok(None),
    };
    opened.map_err(|reason| {
        Failure::new(
            Exit::Failure,
            format!("{resource} {} cannot be read: {reason}", found.key),
        )
        .advise("give the server's --encryption-provider-config, or export from the running server")
    })
}

//! A client of a running server, for the scripts in `bench/`: it asks what it is told to ask, checks the answers, and prints
//! figures as one line of JSON.
//!
//! ```text
//! bench_client --server https://127.0.0.1:6443 --pki data/pki load --clients 8 --requests 2000
//! bench_client --server http://127.0.0.1:8080 --token secret list --path '/api/v1/pods'
//! bench_client --server https://127.0.0.1:6443 --pki data/pki watch --watches 1000
//! ```
//!
//! A failed request, or an answer that is not what was asked for, ends the process with 1.

use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use serde_json::json;

mod connection;
mod failure;
mod load;
mod mix;

use connection::{Connection, Question, Server};
use failure::Failure;

#[derive(Parser)]
#[command(about = "Loads a running server and prints figures as JSON", long_about = None)]
struct Arguments {
    /// Where the server listens: http (HTTP/1.1) or https (HTTP/2 over TLS 1.3)
    #[arg(long, value_name = "URL")]
    server: String,

    /// A directory with ca.crt, admin.crt and admin.key, for https
    #[arg(long, value_name = "DIR")]
    pki: Option<PathBuf>,

    /// A bearer token
    #[arg(long)]
    token: Option<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Many clients at once, a mix of reads and writes; what was created is deleted again
    Load(load::Arguments),
    /// One list, read to its end as it comes
    List {
        /// What to ask
        #[arg(long, default_value = "/api/v1/pods")]
        path: String,
        /// Ask for a Table
        #[arg(long)]
        table: bool,
        /// How often, one after the other
        #[arg(long, default_value_t = 1)]
        times: u32,
    },
    /// Watches on connections of their own that stay open until a line comes on standard input
    Watch {
        /// How many
        #[arg(long, default_value_t = 1_000)]
        watches: u32,
        /// What to ask
        #[arg(
            long,
            default_value = "/api/v1/namespaces/default/configmaps?watch=true&allowWatchBookmarks=false"
        )]
        path: String,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench_client: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = Server::new(&arguments.server, arguments.pki.as_deref(), arguments.token.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &arguments.command {
        Command::Load(load) => print(&runtime.block_on(load::run(&server, load))?),
        Command::List { path, table, times } => {
            for _ in 0..*times {
                print(&runtime.block_on(list(&server, path, *table))?)?;
            }
            Ok(())
        }
        Command::Watch { watches, path } => {
            let open = runtime.block_on(watch(&server, *watches, path))?;
            print(&json!({ "watches": open.len() }))?;
            // The runtime drives connections only while it is polled: a thread waits for the line, this one polls.
            let line = runtime.spawn_blocking(|| io::stdin().lock().read_line(&mut String::new()));
            runtime
                .block_on(line)
                .map_err(|error| Failure::new(error.to_string()))??;
            Ok(())
        }
    }
}

fn print(figures: &serde_json::Value) -> Result<(), Failure> {
    Ok(writeln!(io::stdout(), "{figures}")?)
}

/// Times from the beginning of the connection to the first and the last byte of the body.
async fn list(server: &Server, path: &str, table: bool) -> Result<serde_json::Value, Failure> {
    let begun = Instant::now();
    let mut connection = Connection::open(server).await?;
    let question = Question::get(path);
    let question = if table { question.table() } else { question };
    let mut answer = connection.send(&question).await?;
    let mut bytes = 0;
    let mut first = None;
    let mut last = 0;
    while let Some(data) = answer.data().await? {
        first.get_or_insert_with(|| begun.elapsed());
        bytes += data.len();
        last = data.last().copied().unwrap_or(last);
    }
    // A body that ends early ends in the middle of an object.
    if last != b'}' && last != b'\n' {
        return Err(Failure::new(format!(
            "GET {path}: the body of {bytes} bytes is no whole JSON"
        )));
    }
    Ok(json!({
        "bytes": bytes,
        "first_byte_ms": first.unwrap_or_default().as_secs_f64() * 1e3,
        "last_byte_ms": begun.elapsed().as_secs_f64() * 1e3,
    }))
}

/// Watches that have been answered; their heads alone, the bodies stay open.
async fn watch(server: &Server, watches: u32, path: &str) -> Result<Vec<(Connection, connection::Answer)>, Failure> {
    let mut open = Vec::new();
    for _ in 0..watches {
        let mut connection = Connection::open(server).await?;
        let answer = connection.send(&Question::get(path)).await?;
        open.push((connection, answer));
    }
    Ok(open)
}

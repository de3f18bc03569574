//! The command line: every verb, its flags and its examples.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};

use crate::command;

/// Measures Chappe next to its peers and floors, and simulates its networks.
#[derive(Debug, Parser)]
#[command(name = "chappe-lab", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Print results as JSON on standard output.
    #[arg(long, global = true)]
    pub json: bool,
    /// Print more on standard error; twice for everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure one area together with its peers and floors, and show which targets are met.
    #[command(after_help = command::bench::help())]
    Bench(Bench),
    /// A process of a scenario of `bench`, which starts it.
    #[command(hide = true)]
    Process {
        /// Its role.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Simulate: exchanges between nodes under faults, or a session on your network.
    #[command(subcommand)]
    Sim(Box<command::sim::Sim>),
    /// Print the completions of a shell.
    #[command(
        after_help = "Example:\n  chappe-lab completions bash > /etc/bash_completion.d/chappe-lab"
    )]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages to a directory.
    #[command(hide = true)]
    Man {
        /// The directory.
        directory: PathBuf,
    },
}

/// Flags of `bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The scenario.
    #[arg(value_parser = PossibleValuesParser::new(chappe_lab::SCENARIOS.map(|it| it.name)))]
    pub scenario: String,
    /// Fewer repeats, for a quick overview.
    #[arg(long)]
    pub quick: bool,
    /// Write report, raw samples and figures here.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Only this part of the scenario, by its name below; may be repeated.
    #[arg(long, value_name = "PART")]
    pub only: Vec<String>,
    /// Only samples of this size, of napa between two processes; may be repeated.
    #[arg(long = "size", value_name = "BYTES")]
    pub sizes: Vec<usize>,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// The program `chappe` that readiness and napa measure. Default: in a checkout, the release
    /// build of its sources, built first; elsewhere, the one in the folder of this program.
    #[arg(long, value_name = "PROGRAM")]
    pub program: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

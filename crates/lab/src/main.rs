//! The program `chappe-lab`: measures and simulates Chappe; not part of the product.

#![forbid(unsafe_code)]

mod cli;
mod command;

use std::process::ExitCode;

use chappe_terminal::output::Outcome;
use clap::{CommandFactory, Parser};

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    chappe_terminal::logging(cli.verbose);
    chappe_terminal::exit_code(run(cli))
}

fn run(cli: Cli) -> Outcome {
    match cli.command {
        Command::Bench(flags) => command::bench::run(flags, cli.json),
        Command::Process { arguments } => Ok(chappe_lab::process(&arguments)?),
        Command::Sim(verb) => command::sim::run(*verb, cli.json),
        Command::Completions { shell } => {
            let (mut command, mut text) = (Cli::command(), Vec::new());
            clap_complete::generate(shell, &mut command, "chappe-lab", &mut text);
            chappe_terminal::output::bytes(&text);
            Ok(())
        }
        Command::Man { directory } => Ok(clap_mangen::generate_to(Cli::command(), directory)?),
    }
}

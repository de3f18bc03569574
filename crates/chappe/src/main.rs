//! The program `chappe`.
//!
//! Data goes to standard output, everything else to standard error. Exit code 0: success; 1: a
//! negative result (nothing found, a check failed, a condition not met); 2: an error, with a `hint:`
//! when the remedy is known; 78: `serve` with a wrong configuration, for service managers.

#![forbid(unsafe_code)]

mod cli;
mod command;

use std::process::ExitCode;

use chappe_terminal::output;
use clap::Parser;

use cli::{Cli, Command};
use output::Outcome;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => match command::moved(&error) {
            Some(failure) => return chappe_terminal::exit_code(Err(failure)),
            None => error.exit(),
        },
    };
    chappe_terminal::logging(cli.verbose);
    chappe_terminal::exit_code(run(cli))
}

fn run(cli: Cli) -> Outcome {
    let json = cli.json;
    match cli.command {
        Command::Demo(flags) => command::demo::run(flags, json),
        Command::Init(flags) => command::init::run(flags, json),
        Command::Up(flags) => command::up::run(flags, json),
        Command::Service(verb) => command::unit::run(verb, json),
        Command::Serve(flags) => command::serve::run(flags, json),
        Command::Device(verb) => match verb {
            cli::Device::Run(flags) => command::device::run(flags, json),
            cli::Device::Record(flags) => command::recording::run(flags, json),
            cli::Device::Check(flags) => command::conformance::run(flags, json),
            cli::Device::List { node } => command::announced::list(&node, json),
            cli::Device::Call(flags) => command::announced::call(flags, json),
            cli::Device::Replace(flags) => command::place::replace(flags, json),
            cli::Device::Places { node } => command::place::list(&node, json),
            cli::Device::Exclude(flags) => command::exclusion::exclude(flags, json),
            cli::Device::Include(flags) => command::exclusion::include(flags, json),
            cli::Device::Excluded { node } => command::exclusion::list(&node, json),
        },
        Command::Find(flags) => command::find::run(flags, json),
        Command::Doctor(flags) => command::doctor::run(flags, json),
        Command::Describe(flags) => command::describe::run(flags, json),
        Command::Call(flags) => command::call::run(flags, json),
        Command::Watch(flags) => command::watch::run(flags, json),
        Command::Query(flags) => command::query::run(flags, json),
        Command::Export(flags) => command::export::run(flags, json),
        Command::Write(flags) => command::write::run(flags, json),
        Command::Trace(flags) => command::trace::run(flags, json),
        Command::Config(verb) => command::config::run(verb, json),
        Command::Data(verb) => match verb {
            cli::Data::Check { directory } => command::data::check(&directory, json),
            cli::Data::Repair { directory } => command::data::repair(&directory, json),
            cli::Data::Backup {
                directory,
                to,
                with_secrets,
            } => command::data::backup(&directory, &to, with_secrets, json),
            cli::Data::Restore { from, directory } => {
                command::data::restore(&from, &directory, json)
            }
        },
        Command::Account(verb) => command::account::run(verb, json),
        Command::Stream(verb) => command::stream::run(verb, json),
        Command::Registry(verb) => command::registry::run(verb, json),
        Command::New(verb) => command::new::run(verb, json),
        Command::Try(flags) => command::trial::attempt(flags, json),
        Command::Test(flags) => command::trial::test(&flags, json),
        Command::Sensor(verb) => command::sensor::run(verb, json),
        Command::Import(verb) => command::sensor::import(verb, json),
        Command::Explain(flags) => command::explain::run(&flags, json),
        Command::Why(flags) => command::why::run(flags, json),
        Command::Link(verb) => command::link::run(verb, json),
        Command::Wrapper(verb) => command::wrapper::run(verb, json),
        Command::Dds(flags) => command::dds::run(flags, json),
        Command::Key(verb) => command::key::run(verb, json),
        Command::Exi(verb) => command::exi::run(verb, json),
        Command::Perf(verb) => command::perf::run(verb, json),
        Command::Reference { directory } => command::reference::run(&directory),
        Command::Completions { shell } => {
            command::completions(shell);
            Ok(())
        }
        #[cfg(feature = "man")]
        Command::Man { directory } => command::man(&directory),
    }
}

//! The page of the command line, from the parser.

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::markdown::{block, head, item, paragraph};
use crate::cli::Cli;

/// The page.
pub(super) fn page() -> String {
    let mut root = Cli::command();
    root.build();
    let mut page = head(
        "Command line",
        "Data goes to standard output, everything else to standard error. Exit code 0 means success, 1 a negative \
         result (nothing found, a check failed), 2 an error. An error names its remedy in a line `hint:`, and its code \
         in a line `more:`.",
    );
    page += "## Options of every command\n\n";
    for argument in root.get_arguments().filter(|it| it.is_global_set()) {
        page += &option(argument);
    }
    page += "\n";
    let mut groups = Vec::new();
    for verb in shown(&root) {
        page += &command(verb, 2, &mut groups);
    }
    for (title, options) in groups {
        page += &format!("## Options: {title}\n\n{options}\n");
    }
    page.trim_end().to_owned() + "\n"
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    let verbs = command.get_subcommands();
    verbs.filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

/// A command and those below it. Options with a heading of their own, which several commands have, go to `groups`.
fn command(verb: &Command, level: usize, groups: &mut Vec<(String, String)>) -> String {
    let name = verb.get_bin_name().unwrap_or_else(|| verb.get_name());
    let mut page = format!("{} {name}\n\n", "#".repeat(level));
    let about = verb.get_long_about().or(verb.get_about());
    for part in about
        .map(ToString::to_string)
        .unwrap_or_default()
        .split("\n\n")
    {
        page += &paragraph(part);
    }
    let usage = verb.clone().render_usage().to_string();
    page += &block(usage.trim_start_matches("Usage: "));
    let (mut own, mut shared) = (String::new(), Vec::<(&str, String)>::new());
    for argument in verb.get_arguments() {
        if argument.is_hide_set() || argument.is_global_set() || is_help(argument) {
            continue;
        }
        let text = option(argument);
        match argument.get_help_heading() {
            None => own += &text,
            Some(heading) => match shared.iter_mut().find(|(known, _)| *known == heading) {
                Some((_, options)) => *options += &text,
                None => shared.push((heading, text)),
            },
        }
    }
    for (heading, options) in shared {
        match groups.iter().find(|(known, _)| known == heading) {
            Some((_, known)) if *known == options => {}
            // The same heading with other options.
            Some(_) => {
                own += &options;
                continue;
            }
            None => groups.push((heading.to_owned(), options)),
        }
        let lower = heading.to_lowercase().replace(' ', "-");
        let id = lower.replace(|it: char| !it.is_alphanumeric() && it != '-', "");
        own += &item(0, &format!("[Options: {heading}](#options-{id})"));
    }
    if !own.is_empty() {
        page += &(own + "\n");
    }
    let after = verb.get_after_long_help().or(verb.get_after_help());
    if let Some(after) = after {
        page += &block(&after.to_string());
    }
    for below in shown(verb) {
        page += &command(below, (level + 1).min(4), groups);
    }
    page
}

fn is_help(argument: &Arg) -> bool {
    matches!(
        argument.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    )
}

/// One option or argument, with its default and its values.
fn option(argument: &Arg) -> String {
    let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let names = argument.get_value_names().unwrap_or_default();
    let value = names.iter().map(|name| format!("<{name}>"));
    let value = value.collect::<Vec<_>>().join(" ");
    let long = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    let flags: Vec<_> = [short, long].into_iter().flatten().collect();
    let call = match (flags.is_empty(), takes_value) {
        (true, _) => value,
        (false, true) => format!("{} {value}", flags.join(", ")),
        (false, false) => flags.join(", "),
    };
    let help = argument.get_long_help().or(argument.get_help());
    let mut text = format!(
        "`{call}`: {}",
        help.map(ToString::to_string).unwrap_or_default()
    );
    // The parser takes the full stop of a summary away.
    if !text.ends_with(['.', ' ']) {
        text.push('.');
    }
    let listed = |values: Vec<String>| values.join(", ");
    let values = argument.get_possible_values();
    if takes_value && !values.is_empty() {
        let values = values.iter().map(|value| format!("`{}`", value.get_name()));
        text += &format!(" Values: {}.", listed(values.collect()));
    }
    let defaults = argument.get_default_values();
    if takes_value && !defaults.is_empty() {
        let defaults = defaults
            .iter()
            .map(|value| format!("`{}`", value.to_string_lossy()));
        text += &format!(" Default: {}.", listed(defaults.collect()));
    }
    if let Some(variable) = argument.get_env() {
        text += &format!(" Environment: `{}`.", variable.to_string_lossy());
    }
    item(0, &text)
}

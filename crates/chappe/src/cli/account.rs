//! The command line of `chappe account`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::NodeAddress;

/// Verbs of `account`.
#[derive(Debug, Subcommand)]
pub(crate) enum Account {
    /// Add an account, and print its token.
    #[command(
        after_help = "Examples:\n  chappe account add ada --role operate\n  chappe account add logger --role 'write=lab.*' --token-file logger.token\n  chappe account add ward --role 'read=ward.*,sdc.ctxt.loc:/ward' --expires 2027-01-01T00:00:00Z\n  chappe account add gateway --role read --certificate 'CN=gateway,O=Ward 3'\n\nRoles: read; write (streams, elements, entities); operate (sensors, links, removal; includes read);\nadminister (accounts and everything else). `=` restricts a role to streams, prefixes and scopes.\nThe token is shown once: the node stores its hash."
    )]
    Add(AccountAdd),
    /// List the accounts with their roles.
    #[command(after_help = "Examples:\n  chappe account list\n  chappe account list --json")]
    List(AccountList),
    /// Give an account a new token, and print it; the old one is not valid any more.
    #[command(
        after_help = "Examples:\n  chappe account renew ada\n  chappe account renew logger --token-file logger.token"
    )]
    Renew(AccountRenew),
    /// Revoke an account: its credentials are not valid any more.
    #[command(
        after_help = "Examples:\n  chappe account revoke ada\n  chappe account revoke ada --forget\n\nIts open connections end. A revoked account stays listed, so that its name, which owns entities and\nstands in the audit stream, is not given to another by accident."
    )]
    Revoke(AccountRevoke),
}

/// Flags of `account add`.
#[derive(Debug, Args)]
pub(crate) struct AccountAdd {
    /// Name of the account: letters, digits, `.`, `_`, `-` and `@`.
    pub name: String,
    /// A role: read, write, operate or administer; may be repeated.
    ///
    /// `read=ward.*,lab.pulse,sdc.ctxt.loc:/ward` restricts it to streams, prefixes that end in `*`, and
    /// scopes of devices.
    #[arg(long = "role", required = true, value_name = "ROLE[=STREAMS]")]
    pub roles: Vec<String>,
    /// The subject of its client certificate (RFC 4514), instead of a token.
    #[arg(long, value_name = "NAME")]
    pub certificate: Option<String>,
    /// Also make a token, with --certificate.
    #[arg(long, requires = "certificate")]
    pub with_token: bool,
    /// Its credentials are not accepted from this time on (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
    /// Write the token to this new file, readable by its owner only, instead of printing it.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `account list`.
#[derive(Debug, Args)]
pub(crate) struct AccountList {
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `account renew`.
#[derive(Debug, Args)]
pub(crate) struct AccountRenew {
    /// The account.
    pub name: String,
    /// Write the token to this new file, readable by its owner only, instead of printing it.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `account revoke`.
#[derive(Debug, Args)]
pub(crate) struct AccountRevoke {
    /// The account.
    pub name: String,
    /// Remove it altogether, so that its name is free.
    #[arg(long)]
    pub forget: bool,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

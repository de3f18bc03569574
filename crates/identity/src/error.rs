//! The reasons why a key, a token or a signature is not accepted.

/// Text or bytes that are not a usable key, token or signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not the PEM form of an Ed25519 private key. The text itself is never repeated.
    #[error("not an Ed25519 private key in PKCS#8 PEM form: {0}")]
    Pem(&'static str),
    /// Not 64 hexadecimal digits.
    #[error("{0} is written as 64 hexadecimal digits")]
    Hex(&'static str),
    /// Not a CURVE key. The text itself is never repeated.
    #[error("a CURVE {0} key is written as 40 characters of Z85 or 64 hexadecimal digits")]
    Curve(&'static str),
    /// The signature does not match this key and these bytes.
    #[error("the signature does not match the key and the bytes")]
    Signature,
    /// No secret can be agreed on with this public key.
    #[error("no secret can be agreed on with this public key: it is not on the curve, or weak")]
    Agreement,
    /// Not the text of a token.
    #[error("a token is 43 characters of base64url")]
    Token,
    /// Not the name of a role.
    #[error("a role is read, write, operate or administer")]
    Role,
    /// Not a stream, a prefix or a scope.
    #[error(
        "a role is restricted to streams (`ward.pulse`), prefixes (`ward.*`) or scopes (a URI), \
         separated by commas"
    )]
    Area,
    /// An account without a role.
    #[error("an account has at least one role")]
    NoRole,
    /// More than the limit.
    #[error("{0}: at most {1}")]
    TooMany(&'static str, usize),
    /// Not the name of an account.
    #[error(
        "the name of an account is 1 to 64 letters, digits, `.`, `_`, `-` or `@`, and starts with a \
         letter or a digit"
    )]
    Name,
    /// Not the name of a group.
    #[error(
        "the name of a group is 1 to 64 letters, digits, `.`, `_`, `-` or `@`, and starts with a \
         letter or a digit"
    )]
    Group,
    /// Not a distinguished name.
    #[error("a distinguished name is written as CN=ada,O=Ward 3 (RFC 4514)")]
    DistinguishedName,
}

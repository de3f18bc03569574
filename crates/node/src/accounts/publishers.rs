//! The tokens that publishers of UDDI get for their credentials.
//!
//! A token lasts an hour. An account has a few at a time; one more ends its oldest. Ended tokens are
//! remembered for a while, so that their users learn that they have expired. A token is worth no more
//! than the credential for which it was given: if that is replaced or revoked, so are its tokens.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use chappe_identity::{Token, TokenHash};

use super::{ACCOUNTS_MAX, Refusal};

/// Time for which a token is valid.
const LIFETIME: Duration = Duration::from_secs(3_600);
/// Valid tokens of one account; reason: one for each program that publishes at the same time.
const TOKENS_MAX: usize = 16;
/// Tokens of one account that are remembered, valid or ended.
const REMEMBERED_MAX: usize = 2 * TOKENS_MAX;

struct Issued {
    token: TokenHash,
    /// That of the account.
    credential: TokenHash,
    end: Duration,
}

/// The tokens, by account, the oldest first.
#[derive(Default)]
pub(super) struct PublisherTokens {
    by_account: HashMap<String, VecDeque<Issued>>,
    /// The account of each token, by the text of its hash.
    accounts: HashMap<String, String>,
}

impl PublisherTokens {
    /// Remembers a token that was made for an account.
    pub(super) fn add(
        &mut self,
        account: &str,
        credential: TokenHash,
        token: TokenHash,
        now: Duration,
    ) {
        // Accounts that were removed are forgotten only here.
        if self.by_account.len() > ACCOUNTS_MAX {
            self.by_account.clear();
            self.accounts.clear();
        }
        let name = account.to_owned();
        self.accounts.insert(token.to_string(), name.clone());
        let issued = self.by_account.entry(name).or_default();
        issued.push_back(Issued {
            token,
            credential,
            end: now + LIFETIME,
        });
        while issued.len() > REMEMBERED_MAX
            && let Some(oldest) = issued.pop_front()
        {
            self.accounts.remove(&oldest.token.to_string());
        }
    }

    /// The credential for which a token was given.
    pub(super) fn credential(&self, token: &Token, now: Duration) -> Result<&TokenHash, Refusal> {
        let token = token.hash();
        let account = self.accounts.get(&token.to_string());
        let issued = account.and_then(|account| self.by_account.get(account));
        let newest_first = issued.into_iter().flat_map(|issued| issued.iter().rev());
        let mut newest_first = newest_first.enumerate();
        let found = newest_first.find(|(_, one)| one.token.is_same(&token));
        match found {
            None => Err(Refusal::Unknown),
            Some((age, one)) if age >= TOKENS_MAX || one.end <= now => Err(Refusal::Expired),
            Some((_, one)) => Ok(&one.credential),
        }
    }

    /// Forgets a token.
    pub(super) fn remove(&mut self, token: &Token) {
        let token = token.hash();
        let Some(account) = self.accounts.remove(&token.to_string()) else {
            return;
        };
        if let Some(issued) = self.by_account.get_mut(&account) {
            issued.retain(|one| !one.token.is_same(&token));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u8) -> Token {
        Token::from_seed([number; 32])
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn tokens_are_bounded_in_time_and_number() {
        let mut tokens = PublisherTokens::default();
        let credential = token(200).hash();
        let start = seconds(7);
        tokens.add("ada", credential.clone(), token(1).hash(), start);
        let of = |tokens: &PublisherTokens, number, now| {
            let found = tokens.credential(&token(number), now);
            found.map(|found| found.is_same(&credential))
        };
        assert_eq!(of(&tokens, 1, start), Ok(true));
        assert_eq!(of(&tokens, 1, start + LIFETIME - seconds(1)), Ok(true));
        assert_eq!(of(&tokens, 1, start + LIFETIME), Err(Refusal::Expired));
        assert_eq!(of(&tokens, 2, start), Err(Refusal::Unknown));
        for number in 2..=17 {
            tokens.add("ada", credential.clone(), token(number).hash(), start);
        }
        tokens.add("bob", credential.clone(), token(100).hash(), start);
        assert_eq!(of(&tokens, 1, start), Err(Refusal::Expired));
        assert_eq!(of(&tokens, 2, start), Ok(true));
        for number in 18..=33 {
            tokens.add("ada", credential.clone(), token(number).hash(), start);
        }
        assert_eq!(of(&tokens, 1, start), Err(Refusal::Unknown));
        assert_eq!(of(&tokens, 100, start), Ok(true));
        tokens.remove(&token(100));
        assert_eq!(of(&tokens, 100, start), Err(Refusal::Unknown));
        assert_eq!(tokens.accounts.len(), REMEMBERED_MAX);
    }

    #[test]
    fn accounts_do_not_accumulate() {
        let mut tokens = PublisherTokens::default();
        for number in 0..=ACCOUNTS_MAX + 5 {
            let account = format!("account {number}");
            let token = Token::from_seed([number.to_le_bytes()[0]; 32]);
            tokens.add(&account, token.hash(), token.hash(), Duration::ZERO);
        }
        assert!(tokens.by_account.len() <= ACCOUNTS_MAX + 1);
    }
}

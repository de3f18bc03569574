//! The address that the registry gives each business as a discoveryURL.
//!
//! Source: UDDI 2.04 API specification and 2.03 data structure reference, discoveryURLs: the registry adds
//! one of the useType `businessEntity`, from which HTTP GET has the business in XML. It is made for each
//! answer, from the address that the client asked, so it is not stored, and not kept if a publisher saves
//! what it was given. find_business finds the business by it. That it is a `businessDetail` is our choice, as is the form of the address.

use super::{Answer, Request};
use crate::uddi::value::{BusinessEntity, DiscoveryUrl};

fn with_address(business: &mut BusinessEntity, base: &str) {
    let Some(key) = business.key else { return };
    let generated = DiscoveryUrl::generated(base, key);
    business.discovery_urls.insert(0, generated);
}

impl Answer {
    /// The answer with the address of each business, below `base`, such as `http://192.0.2.1:8470`.
    #[must_use]
    pub fn with_discovery_urls(mut self, base: &str) -> Self {
        if let Self::BusinessDetail(found) | Self::BusinessDetailExt(found) = &mut self {
            found
                .iter_mut()
                .for_each(|owned| with_address(&mut owned.value, base));
        }
        self
    }
}

impl Request {
    /// The request without the addresses that [`Answer::with_discovery_urls`] adds.
    #[must_use]
    pub fn without_discovery_urls(mut self) -> Self {
        if let Self::SaveBusiness(businesses) = &mut self {
            for business in businesses {
                let Some(key) = business.key else { continue };
                business
                    .discovery_urls
                    .retain(|url| url.use_type.is_empty() || url.generated_for() != Some(key));
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uddi::{BusinessKey, Owned};

    #[test]
    fn what_is_added_to_an_answer_is_not_saved() {
        let url = |use_type: &str, url: &str| DiscoveryUrl {
            use_type: use_type.to_owned(),
            url: url.to_owned(),
        };
        let own = vec![
            url("homepage", "http://ward.example"),
            url(
                "businessEntity",
                "http://ward.example/uddi/get?businessKey=x",
            ),
        ];
        let business = BusinessEntity {
            key: Some(BusinessKey::new(7)),
            discovery_urls: own.clone(),
            ..BusinessEntity::default()
        };
        let found = Answer::BusinessDetail(vec![Owned {
            value: business,
            authorized_name: "ada".to_owned(),
        }]);
        let Answer::BusinessDetail(found) = found.with_discovery_urls("http://192.0.2.1:8470")
        else {
            unreachable!()
        };
        let shown = &found[0].value;
        let key = BusinessKey::new(7);
        let address = format!("http://192.0.2.1:8470/uddi/get?businessKey={key}");
        assert_eq!(shown.discovery_urls[0], url("businessEntity", &address));
        assert_eq!(shown.discovery_urls[1..], own);
        let mut saved = shown.clone();
        // The same from another address, in other digits.
        let other = format!(
            "https://other/uddi/get?businessKey={}",
            key.to_string().to_lowercase()
        );
        saved.discovery_urls.push(url("businessEntity", &other));
        let saved = Request::SaveBusiness(vec![saved]).without_discovery_urls();
        let Request::SaveBusiness(saved) = saved else {
            unreachable!()
        };
        assert_eq!(saved[0].discovery_urls, own);
    }
}

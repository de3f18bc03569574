//! Answers as values.

use crate::uddi::Owned;
use crate::uddi::assertion::{AssertionStatus, RelatedBusiness};
use crate::uddi::find::{BusinessInfo, List, ServiceInfo, TModelInfo};
use crate::uddi::key::BusinessKey;
use crate::uddi::publisher::RegisteredInfo;
use crate::uddi::value::{
    BindingTemplate, BusinessEntity, BusinessService, PublisherAssertion, TModel,
};

/// What a request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// authToken.
    AuthToken(String),
    /// bindingDetail.
    BindingDetail(List<BindingTemplate>),
    /// businessDetail.
    BusinessDetail(Vec<Owned<BusinessEntity>>),
    /// businessDetailExt.
    BusinessDetailExt(Vec<Owned<BusinessEntity>>),
    /// serviceDetail.
    ServiceDetail(Vec<BusinessService>),
    /// tModelDetail.
    TModelDetail(Vec<Owned<TModel>>),
    /// businessList.
    BusinessList(List<BusinessInfo>),
    /// serviceList.
    ServiceList(List<ServiceInfo>),
    /// tModelList.
    TModelList(List<TModelInfo>),
    /// relatedBusinessesList, with the business asked about.
    RelatedBusinessesList(BusinessKey, List<RelatedBusiness>),
    /// publisherAssertions, with the publisher.
    Assertions(String, Vec<PublisherAssertion>),
    /// assertionStatusReport.
    AssertionStatusReport(Vec<AssertionStatus>),
    /// registeredInfo.
    RegisteredInfo(RegisteredInfo),
    /// A dispositionReport of success.
    Success,
}

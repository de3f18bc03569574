import java.util.Vector;

import org.uddi4j.UDDIException;
import org.uddi4j.client.UDDIProxy;
import org.uddi4j.datatype.Name;
import org.uddi4j.datatype.assertion.PublisherAssertion;
import org.uddi4j.datatype.binding.AccessPoint;
import org.uddi4j.datatype.binding.BindingTemplate;
import org.uddi4j.datatype.binding.BindingTemplates;
import org.uddi4j.datatype.binding.TModelInstanceDetails;
import org.uddi4j.datatype.binding.TModelInstanceInfo;
import org.uddi4j.datatype.business.BusinessEntity;
import org.uddi4j.datatype.business.Contact;
import org.uddi4j.datatype.business.Contacts;
import org.uddi4j.datatype.service.BusinessService;
import org.uddi4j.datatype.tmodel.TModel;
import org.uddi4j.response.BusinessInfo;
import org.uddi4j.response.DispositionReport;
import org.uddi4j.response.ServiceInfo;
import org.uddi4j.util.CategoryBag;
import org.uddi4j.util.FindQualifier;
import org.uddi4j.util.FindQualifiers;
import org.uddi4j.util.KeyedReference;
import org.uddi4j.util.TModelBag;

/**
 * UDDI4J over Axis 1.4 publishes and finds in a running node: java Uddi4jPeer INQUIRY PUBLISH USER CREDENTIAL [SERVICE].
 * With a SERVICE it waits for that service of a device instead, and prints `waiting` once it looked in vain.
 */
public class Uddi4jPeer {
    private static final String HTTP = "uuid:68DE9E80-AD09-469D-8A37-088422BFBC36";
    /** Between two looks for a service, so that the time until it is found is measured well. */
    private static final long PAUSE_MS = 20;
    private static final long PATIENCE_NS = 120_000_000_000L;

    private static void expect(boolean condition, String what) {
        if (!condition) {
            throw new IllegalStateException(what);
        }
        System.out.println("ok: " + what);
    }

    private static Vector one(Object value) {
        Vector all = new Vector();
        all.add(value);
        return all;
    }

    private interface Call {
        void run() throws Exception;
    }

    private static void refused(String code, Call call) throws Exception {
        try {
            call.run();
        } catch (UDDIException error) {
            DispositionReport report = error.getDispositionReport();
            String found = report == null ? error.getFaultString() : report.getErrCode();
            if (!code.equals(found)) {
                throw new IllegalStateException(found + ", not " + code);
            }
            expect(true, code + " reaches the caller");
            return;
        }
        throw new IllegalStateException(code + " is not raised");
    }

    private static Vector find(UDDIProxy proxy, String name) throws Exception {
        return proxy.find_service("", one(new Name(name)), null, null, null, 5).getServiceInfos().getServiceInfoVector();
    }

    private static void device(UDDIProxy proxy, String name) throws Exception {
        long end = System.nanoTime() + PATIENCE_NS;
        Vector found = find(proxy, name);
        if (found.isEmpty()) {
            System.out.println("waiting");
        }
        while (found.isEmpty() && System.nanoTime() < end) {
            Thread.sleep(PAUSE_MS);
            found = find(proxy, name);
        }
        expect(found.size() == 1, "find_service finds the service of a device");
        String key = ((ServiceInfo) found.get(0)).getServiceKey();
        BusinessService service = (BusinessService) proxy.get_serviceDetail(key).getBusinessServiceVector().get(0);
        BindingTemplate binding = (BindingTemplate) service.getBindingTemplates().get(0);
        String address = binding.getAccessPoint().getText();
        expect(address.startsWith("http://127.0.7.1:"), "its binding has the device's address");
        expect(binding.getTModelInstanceDetails().size() >= 1, "its binding has the tModels of its WSDL");
        System.out.println("done");
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.uddi4j.TransportClassName", "org.uddi4j.transport.ApacheAxisTransport");
        UDDIProxy proxy = new UDDIProxy();
        proxy.setInquiryURL(arguments[0]);
        proxy.setPublishURL(arguments[1]);
        if (arguments.length > 4) {
            device(proxy, arguments[4]);
            return;
        }
        refused("E_unknownUser", () -> proxy.get_authToken(arguments[2], "wrong"));
        String token = proxy.get_authToken(arguments[2], arguments[3]).getAuthInfoString();
        expect(token.length() > 20, "get_authToken");

        TModel colours = new TModel("", "uddi4j colours");
        colours.setDefaultDescriptionString("Colours & shades");
        String colour = ((TModel) proxy.save_tModel(token, one(colours)).getTModelVector().get(0)).getTModelKey();
        expect(colour.startsWith("uuid:"), "save_tModel");

        BusinessEntity ward = new BusinessEntity("", "UDDI4J ward", "en");
        ward.setDefaultDescriptionString("A ward");
        Contact contact = new Contact("Ada");
        Contacts contacts = new Contacts();
        contacts.setContactVector(one(contact));
        ward.setContacts(contacts);
        ward = (BusinessEntity) proxy.save_business(token, one(ward)).getBusinessEntityVector().get(0);
        String business = ward.getBusinessKey();
        expect(business.length() == 36, "save_business");
        expect("Ada".equals(((Contact) ward.getContacts().getContactVector().get(0)).getPersonNameString()),
            "the contact comes back");

        BusinessService pulse = new BusinessService("");
        pulse.setBusinessKey(business);
        pulse.setNameVector(one(new Name("UDDI4J pulse", "en")));
        CategoryBag categories = new CategoryBag();
        categories.setKeyedReferenceVector(one(new KeyedReference("shade", "red", colour)));
        pulse.setCategoryBag(categories);
        TModelInstanceInfo info = new TModelInstanceInfo(HTTP);
        TModelInstanceDetails details = new TModelInstanceDetails();
        details.setTModelInstanceInfoVector(one(info));
        BindingTemplate binding = new BindingTemplate("", details, new AccessPoint("http://example.com/pulse", "http"));
        BindingTemplates bindings = new BindingTemplates();
        bindings.setBindingTemplateVector(one(binding));
        pulse.setBindingTemplates(bindings);
        pulse = (BusinessService) proxy.save_service(token, one(pulse)).getBusinessServiceVector().get(0);
        String service = pulse.getServiceKey();
        expect(pulse.getBindingTemplates().size() == 1, "save_service with a binding");

        Vector names = one(new Name("uddi4j p%"));
        TModelBag bag = new TModelBag();
        bag.setTModelKeyVector(one(new org.uddi4j.util.TModelKey(HTTP)));
        FindQualifiers qualifiers = new FindQualifiers();
        qualifiers.setFindQualifierVector(one(new FindQualifier(FindQualifier.sortByDateDesc)));
        Vector found = proxy.find_service("", names, categories, bag, qualifiers, 5).getServiceInfos().getServiceInfoVector();
        expect(((ServiceInfo) found.get(0)).getServiceKey().equals(service), "find_service by name, category and tModel");
        found = proxy.find_business(one(new Name("UDDI4J")), null, null, null, bag, null, 0).getBusinessInfos().getBusinessInfoVector();
        expect(((BusinessInfo) found.get(0)).getBusinessKey().equals(business), "find_business");
        BusinessService read = (BusinessService) proxy.get_serviceDetail(service).getBusinessServiceVector().get(0);
        BindingTemplate bound = (BindingTemplate) read.getBindingTemplates().get(0);
        expect("http://example.com/pulse".equals(bound.getAccessPoint().getText()), "get_serviceDetail");
        expect(proxy.find_binding(null, service, bag, 0).getBindingTemplateVector().size() == 1, "find_binding");
        expect(proxy.get_bindingDetail(bound.getBindingKey()).getBindingTemplateVector().size() == 1, "get_bindingDetail");
        expect(proxy.get_tModelDetail(HTTP).getTModelVector().size() == 1, "get_tModelDetail of a canonical tModel");
        expect(proxy.find_tModel("uddi4j", null, 0).getTModelInfos().size() == 1, "find_tModel");
        expect(proxy.get_businessDetailExt(business).getBusinessEntityExtVector().size() == 1, "get_businessDetailExt");

        BusinessEntity lab = (BusinessEntity) proxy.save_business(token, one(new BusinessEntity("", "UDDI4J lab")))
            .getBusinessEntityVector().get(0);
        PublisherAssertion assertion = new PublisherAssertion(business, lab.getBusinessKey(),
            new KeyedReference("part", "parent-child", TModel.RELATIONSHIPS_TMODEL_KEY));
        proxy.add_publisherAssertions(token, assertion);
        expect(proxy.find_relatedBusinesses(business, null, null).getRelatedBusinessInfos().size() == 1,
            "add_publisherAssertions, find_relatedBusinesses");
        expect(proxy.get_publisherAssertions(token).getPublisherAssertionVector().size() == 1, "get_publisherAssertions");
        expect(proxy.get_assertionStatusReport(token, "status:complete").getAssertionStatusItemVector().size() == 1,
            "get_assertionStatusReport");
        expect(proxy.set_publisherAssertions(token, new Vector()).getPublisherAssertionVector().isEmpty(),
            "set_publisherAssertions");
        expect(proxy.get_registeredInfo(token).getBusinessInfos().size() == 2, "get_registeredInfo");

        refused("E_invalidKeyPassed", () -> proxy.get_serviceDetail("A0000000-0000-4000-8000-000000000000"));
        refused("E_authTokenRequired", () -> proxy.delete_business("none", business));
        FindQualifiers contrary = new FindQualifiers();
        contrary.setFindQualifierVector(one(new FindQualifier(FindQualifier.sortByNameAsc)));
        contrary.add(new FindQualifier(FindQualifier.sortByNameDesc));
        refused("E_tooManyOptions", () -> proxy.find_tModel("x", contrary, 0));
        expect(proxy.delete_binding(token, bound.getBindingKey()).success(), "delete_binding");
        expect(proxy.delete_service(token, service).success(), "delete_service");
        Vector both = one(business);
        both.add(lab.getBusinessKey());
        expect(proxy.delete_business(token, both).success(), "delete_business");
        expect(proxy.delete_tModel(token, colour).success(), "delete_tModel");
        expect(proxy.find_tModel("uddi4j", null, 0).getTModelInfos().size() == 0, "a deleted tModel is hidden");
        expect(proxy.discard_authToken(token).success(), "discard_authToken");
        refused("E_authTokenRequired", () -> proxy.get_registeredInfo(token));
        System.out.println("done");
    }
}

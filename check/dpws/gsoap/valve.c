/* Calls the example `actuator` by the functions that gSOAP makes of its WSDL, with WS-Addressing.
 *
 *   program ADDRESS    ADDRESS: that of the service, such as http://127.0.7.1:40007/Valve
 *
 * Prints one line for each step: an answer, a fault with its detail, a one-way message.
 */
#include "soapH.h"
#include "wsaapi.h"
/* The namespaces of the generated code, named by the binding. */
#include "ValveBinding.nsmap"

#define REQUEST "https://chappe.example/valve/Valve/MoveToRequest"
#define CLOSE "https://chappe.example/valve/Valve/Close"

static int move(struct soap *soap, const char *address, int percent, struct ns1__Position *answer) {
    struct ns1__Position asked = {percent};
    soap_wsa_request(soap, soap_wsa_rand_uuid(soap), address, REQUEST);
    return soap_call___ns1__MoveTo(soap, address, REQUEST, &asked, answer);
}

int main(int count, char **words) {
    struct soap *soap = soap_new1(SOAP_C_UTFSTRING | SOAP_IO_KEEPALIVE);
    struct ns1__Position answer;
    struct ns1__empty nothing;
    const char *address = count == 2 ? words[1] : "";
    soap_register_plugin(soap, soap_wsa);
    soap->connect_timeout = soap->send_timeout = soap->recv_timeout = 20;
    if (move(soap, address, 40, &answer)) {
        soap_print_fault(soap, stderr);
        return 1;
    }
    printf("answer %d\n", answer.percent);
    if (!soap_wsa_check(soap)) {
        printf("relates to the request\n");
    }
    soap_end(soap);
    if (!move(soap, address, 140, &answer)) {
        fprintf(stderr, "140 percent is no fault\n");
        return 1;
    }
    soap_set_fault(soap);
    printf("fault %s\n", soap_fault_subcode(soap));
    printf("reason %s\n", soap_fault_string(soap));
    if (soap->fault && soap->fault->SOAP_ENV__Detail && soap->fault->SOAP_ENV__Detail->ns1__OutOfRange) {
        struct ns1__Limits *limits = soap->fault->SOAP_ENV__Detail->ns1__OutOfRange;
        printf("limits %d %d\n", limits->from, limits->to);
    }
    soap_end(soap);
    soap_wsa_request(soap, soap_wsa_rand_uuid(soap), address, CLOSE);
    memset(&nothing, 0, sizeof nothing);
    if (soap_send___ns1__Close(soap, address, CLOSE, &nothing) || soap_recv_empty_response(soap)) {
        soap_print_fault(soap, stderr);
        return 1;
    }
    printf("closed\n");
    soap_destroy(soap);
    soap_end(soap);
    soap_free(soap);
    return 0;
}

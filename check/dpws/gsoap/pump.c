/* Serves pump.wsdl by the skeletons that gSOAP makes of it, with WS-Addressing.
 *
 *   program    prints the port of its address 127.0.7.3, and the tank of each one-way message
 *
 * Filling repeats the steps in reverse order; more than 1,000 litres are a fault with the limit as detail.
 */
#include <arpa/inet.h>
#include "soapH.h"
#include "wsaapi.h"
/* The namespaces of the generated code, named by the binding. */
#include "PumpBinding.nsmap"

#define ADDRESS "127.0.7.3"
#define LIMIT_LITRES 1000
#define LITRES_PER_LEVEL 100

int __ns1__Fill(struct soap *soap, struct _ns1__Fill *asked, struct _ns1__FillResponse *answer) {
    struct ns1__Target *target = asked->target;
    double litres = target->__union_Target == SOAP_UNION__ns1__union_Target_level
                        ? target->union_Target.level * LITRES_PER_LEVEL
                        : target->union_Target.litres;
    if (litres > LIMIT_LITRES) {
        struct _ns1__Overflow *overflow = soap_malloc(soap, sizeof *overflow);
        int failed = soap_wsa_sender_fault(soap, "the tank overflows", NULL);
        overflow->limit = LIMIT_LITRES;
        soap->fault->SOAP_ENV__Detail = soap_malloc(soap, sizeof *soap->fault->SOAP_ENV__Detail);
        memset(soap->fault->SOAP_ENV__Detail, 0, sizeof *soap->fault->SOAP_ENV__Detail);
        soap->fault->SOAP_ENV__Detail->ns1__Overflow = overflow;
        return failed;
    }
    answer->volume = soap_malloc(soap, sizeof *answer->volume);
    answer->volume->__item = litres;
    answer->volume->unit = "L";
    answer->__sizestep = asked->__sizestep;
    answer->step = soap_malloc(soap, (asked->__sizestep + 1) * sizeof *answer->step);
    for (int i = 0; i < asked->__sizestep; i++) {
        answer->step[i] = asked->step[asked->__sizestep - 1 - i];
    }
    answer->note = asked->note;
    return soap_wsa_reply(soap, NULL, "https://chappe.example/pump/Pump/FillResponse");
}

int __ns1__Stop(struct soap *soap, struct _ns1__Stop *asked) {
    printf("stopped %s\n", asked->tank);
    fflush(stdout);
    return soap_send_empty_response(soap, 202);
}

/* The plugin also serves faults that others send to it; here is nobody who sends any. */
int SOAP_ENV__Fault(struct soap *soap, char *faultcode, char *faultstring, char *faultactor,
                    struct SOAP_ENV__Detail *detail, struct SOAP_ENV__Code *code, struct SOAP_ENV__Reason *reason,
                    char *node, char *role, struct SOAP_ENV__Detail *detail12) {
    return soap_send_empty_response(soap, 202);
}

int main(void) {
    struct soap *soap = soap_new1(SOAP_C_UTFSTRING | SOAP_IO_KEEPALIVE);
    struct sockaddr_in bound;
    socklen_t size = sizeof bound;
    soap_register_plugin(soap, soap_wsa);
    soap->send_timeout = soap->recv_timeout = 20;
    if (!soap_valid_socket(soap_bind(soap, ADDRESS, 0, 16)) ||
        getsockname(soap->master, (struct sockaddr *)&bound, &size)) {
        soap_print_fault(soap, stderr);
        return 1;
    }
    printf("port %d\n", ntohs(bound.sin_port));
    fflush(stdout);
    while (soap_valid_socket(soap_accept(soap))) {
        soap_serve(soap);
        soap_destroy(soap);
        soap_end(soap);
    }
    return 1;
}

/* Both ends of `chappe-lab bench invoke` by the functions that gSOAP makes of the device's WSDL.
 *
 *   program serve ADDRESS                               prints `ready ADDRESS:PORT`
 *   program call ADDRESS:PORT kept|new ROUNDS LOAD...   LOAD: integers-N or characters-N
 *
 * A client prints one line a call: the load, the nanoseconds until the server had read the request, and those until the
 * client had read the answer. Compiled with ADDRESSING, both use the plugin for WS-Addressing.
 */
#include "soapH.h"
#include "StudyBinding.nsmap"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <time.h>
#ifdef ADDRESSING
#include "wsaapi.h"
#endif

#define ACTION "https://chappe.example/study/Study/"
/* Calls of one connection. Reason: more than any run has. */
#define CALLS_MAX 1000000

static LONG64 now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (LONG64)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void taken(struct ns1__Taken *answer, int count) {
    answer->at_USCOREns = now();
    answer->count = count;
}

static int answered(struct soap *soap, const char *action) {
#ifdef ADDRESSING
    return soap_wsa_check(soap) || soap_wsa_reply(soap, soap_wsa_rand_uuid(soap), action);
#else
    return SOAP_OK;
#endif
}

int __ns1__TakeIntegers(struct soap *soap, struct ns1__Integers *asked, struct ns1__Taken *answer) {
    taken(answer, asked->__sizevalue);
    return answered(soap, ACTION "TakeIntegersResponse");
}

int __ns1__TakeCharacters(struct soap *soap, struct ns1__Characters *asked, struct ns1__Taken *answer) {
    taken(answer, strlen(asked->text));
    return answered(soap, ACTION "TakeCharactersResponse");
}

#ifdef ADDRESSING
int SOAP_ENV__Fault(struct soap *soap, char *code, char *string, char *actor, struct SOAP_ENV__Detail *detail,
                    struct SOAP_ENV__Code *code2, struct SOAP_ENV__Reason *reason, char *node, char *role,
                    struct SOAP_ENV__Detail *detail2) {
    return SOAP_OK;
}
#endif

static struct soap *context(int is_kept) {
    struct soap *soap = soap_new1(SOAP_C_UTFSTRING | (is_kept ? SOAP_IO_KEEPALIVE : 0));
    soap->max_keep_alive = CALLS_MAX;
    soap->bind_flags = SO_REUSEADDR;
    soap->tcp_keep_alive = 0;
#ifdef ADDRESSING
    soap_register_plugin(soap, soap_wsa);
#endif
    return soap;
}

static int failed(struct soap *soap) {
    soap_print_fault(soap, stderr);
    return 1;
}

static int serve(const char *address) {
    struct soap *soap = context(1);
    struct sockaddr_in bound;
    socklen_t length = sizeof bound;
    if (!soap_valid_socket(soap_bind(soap, address, 0, 16))) return failed(soap);
    getsockname(soap->master, (struct sockaddr *)&bound, &length);
    printf("ready %s:%d\n", address, ntohs(bound.sin_port));
    fflush(stdout);
    for (;;) {
        if (!soap_valid_socket(soap_accept(soap))) return failed(soap);
        /* The client closes the connection. */
        soap_serve(soap);
        soap_destroy(soap);
        soap_end(soap);
    }
}

/* What one load sends. */
struct load {
    const char *name;
    struct ns1__Integers integers;
    struct ns1__Characters characters;
    int count;
};

static int read_load(struct load *load, const char *name) {
    int index;
    load->name = name;
    if (sscanf(name, "integers-%d", &load->count) == 1) {
        load->integers.__sizevalue = load->count;
        load->integers.value = malloc((load->count + 1) * sizeof(int));
        for (index = 0; index < load->count; index++) {
            load->integers.value[index] = 1000000000 + (LONG64)index * 7919017 % 1147483647;
        }
        load->characters.text = NULL;
    } else if (sscanf(name, "characters-%d", &load->count) == 1) {
        load->characters.text = malloc(load->count + 1);
        memset(load->characters.text, 'x', load->count);
        load->characters.text[load->count] = 0;
    } else {
        return 1;
    }
    return 0;
}

static int call(struct soap *soap, const char *endpoint, struct load *load, LONG64 *one_way, LONG64 *round_trip) {
    struct ns1__Taken answer;
    const char *action = load->characters.text ? ACTION "TakeCharactersRequest" : ACTION "TakeIntegersRequest";
    LONG64 start = now();
    int error;
#ifdef ADDRESSING
    soap_wsa_request(soap, soap_wsa_rand_uuid(soap), endpoint, action);
#endif
    if (load->characters.text) {
        error = soap_call___ns1__TakeCharacters(soap, endpoint, action, &load->characters, &answer);
    } else {
        error = soap_call___ns1__TakeIntegers(soap, endpoint, action, &load->integers, &answer);
    }
#ifdef ADDRESSING
    error = error || soap_wsa_check(soap);
#endif
    *round_trip = now() - start;
    if (error || answer.count != load->count) return 1;
    *one_way = answer.at_USCOREns - start;
    soap_destroy(soap);
    soap_end(soap);
    return 0;
}

static int call_all(int count, char **words) {
    struct soap *soap = context(!strcmp(words[1], "kept"));
    int rounds = atoi(words[2]), round, index;
    char endpoint[128];
    LONG64 one_way, round_trip;
    snprintf(endpoint, sizeof endpoint, "http://%s/Study", words[0]);
    for (index = 3; index < count; index++) {
        struct load load = {0};
        if (read_load(&load, words[index])) return 2;
        /* One in ten is called before and not counted. */
        for (round = -(rounds / 10); round < rounds; round++) {
            if (call(soap, endpoint, &load, &one_way, &round_trip)) return failed(soap);
            if (round >= 0) printf("%s %lld %lld\n", load.name, (long long)one_way, (long long)round_trip);
        }
    }
    return fflush(stdout);
}

int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "serve")) return serve(words[2]);
    if (count >= 6 && !strcmp(words[1], "call")) return call_all(count - 2, words + 2);
    return 2;
}

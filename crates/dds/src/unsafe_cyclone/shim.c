/* Cyclone DDS for Rust: samples as bytes, and the acknowledged number of a writer.
 *
 * A custom type (`ddsi_sertype`) consists of tables and structs whose layout depends on the library's headers and
 * version, so this part is in C. Rust calls the functions at the end, which use plain numbers and pointers.
 *
 * - All samples of a topic have one key, so that a stranger's keys cannot fill memory.
 * - The number of a sample at its writer is read from the submessage that carried it.
 * - The number acknowledged by all reliable readers is read from the library's writer. A hook in the writer's history
 *   cache notifies when it grows: the library removes acknowledged samples from the cache at each acknowledgement.
 * - The library calls `chappe_library_abort` instead of `abort`.
 */
#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dds/dds.h>
#include <dds/ddsrt/sync.h>
#include <dds/ddsi/ddsi_domaingv.h>
#include <dds/ddsi/ddsi_entity.h>
#include <dds/ddsi/ddsi_endpoint.h>
#include <dds/ddsi/ddsi_entity_index.h>
#include <dds/ddsi/ddsi_proxy_participant.h>
#include <dds/ddsi/ddsi_radmin.h>
#include <dds/ddsi/ddsi_serdata.h>
#include <dds/ddsi/ddsi_sertype.h>
#include <dds/ddsi/ddsi_thread.h>
#include <dds/ddsi/ddsi_whc.h>

/* Headers of the library's own sources. */
#include "dds__entity.h"
#include "dds__writer.h"
#include "ddsi__endpoint.h"
#include "ddsi__hbcontrol.h"
#include "ddsi__misc.h"
#include "ddsi__protocol.h"
#include "ddsi__proxy_endpoint.h"
#include "ddsi__proxy_participant.h"
#include "ddsi__thread.h"
#include "ddsi__xmsg.h"

/* The encapsulation before the CDR of a sample. */
#define HEAD 4u
/* The largest sample accepted from the network: SAMPLE_BYTES_MAX, with the header. */
#define MOST ((4u << 20) + HEAD)
/* The most bytes of received samples of one type that are not freed yet; reason: readers count samples, and hundreds of the
 * largest take gigabytes. */
#define HELD_MOST ((size_t)256 << 20)

/* -- the end of the library's threads -------------------------------------------------------------- */

/* Of Rust: records it. Allocates nothing, for memory may be used up. */
extern void chappe_aborted(uint32_t domain);

/* `build.rs` compiles the library with this name in place of `abort`: so it stops the thread that cannot continue, with
 * the locks that it holds, and not the program. The supervisor then replaces the participant. */
__attribute__((noreturn)) void chappe_library_abort(void)
{
    const struct ddsi_domaingv *domain = tsd_thread_state == NULL ? NULL : ddsrt_atomic_ldvoidp(&tsd_thread_state->gv);
    chappe_aborted(domain == NULL ? UINT32_MAX : domain->logconfig.c.domid);
    for (;;)
        pause();
}

/* -- samples ------------------------------------------------------------------------------------- */

/* The bytes of a type's received samples. They may outlive the type. */
struct held {
    atomic_size_t bytes;
    atomic_size_t owners; /* the type, and each of them */
};

struct type {
    struct ddsi_sertype c;
    struct held *held;
};

static void held_free(struct held *held)
{
    if (held != NULL && atomic_fetch_sub(&held->owners, 1) == 1)
        free(held);
}

struct sample {
    struct ddsi_serdata c;
    struct held *held; /* of a received one */
    int64_t number;
    uint32_t size; /* with the header */
    uint8_t cdr[]; /* padded to a multiple of four */
};

static const struct ddsi_serdata_ops sample_ops;

static struct sample *sample_new(const struct ddsi_sertype *type, enum ddsi_serdata_kind kind, uint32_t size)
{
    /* The caller writes the bytes. */
    uint32_t padded = (size + 3u) & ~3u;
    struct sample *sample = malloc(sizeof *sample + padded);
    if (sample == NULL)
        return NULL;
    memset(sample, 0, sizeof *sample + HEAD);
    memset(sample->cdr + size, 0, padded - size);
    ddsi_serdata_init(&sample->c, type, kind);
    sample->c.hash = type->serdata_basehash;
    sample->size = size;
    return sample;
}

static void sample_free(struct ddsi_serdata *d)
{
    struct sample *sample = (struct sample *)d;
    if (sample->held != NULL)
        atomic_fetch_sub(&sample->held->bytes, sample->size);
    held_free(sample->held);
    free(sample);
}

/* A sample from the network, or NULL if those of its type take too much memory: its number is missing then, so that the
 * reader counts it as lost. */
static struct sample *sample_received(const struct ddsi_sertype *type, enum ddsi_serdata_kind kind, size_t size)
{
    struct held *held = ((const struct type *)type)->held;
    if (atomic_load(&held->bytes) + size > HELD_MOST)
        return NULL;
    struct sample *sample = sample_new(type, kind, (uint32_t)size);
    if (sample == NULL)
        return NULL;
    sample->held = held;
    atomic_fetch_add(&held->owners, 1);
    atomic_fetch_add(&held->bytes, size);
    return sample;
}

static bool key_equal(const struct ddsi_serdata *a, const struct ddsi_serdata *b)
{
    (void)a;
    (void)b;
    return true;
}

static uint32_t sample_size(const struct ddsi_serdata *d)
{
    return ((const struct sample *)d)->size;
}

/* The sample if its encoding is one that the type allows: plain CDR of version 1, or any of both versions (DDS-XTypes 1.3,
 * table 60). The library drops others and logs that. */
static struct ddsi_serdata *plain_or_gone(struct sample *sample)
{
    bool any = (sample->c.type->allowed_data_representation & DDS_DATA_REPRESENTATION_FLAG_XCDR2) != 0;
    if (sample->cdr[0] == 0 && sample->cdr[1] <= (any ? 0xb : 1))
        return &sample->c;
    sample_free(&sample->c);
    return NULL;
}

static struct ddsi_serdata *from_fragments(const struct ddsi_sertype *type, enum ddsi_serdata_kind kind,
                                           const struct ddsi_rdata *fragment, size_t size)
{
    if (size < HEAD || size > MOST || fragment == NULL)
        return NULL;
    struct sample *sample = sample_received(type, kind, size);
    if (sample == NULL)
        return NULL;
    if (DDSI_RDATA_SUBMSG_OFF(fragment) != 0) {
        const ddsi_rtps_data_datafrag_common_t *data =
            (const ddsi_rtps_data_datafrag_common_t *)DDSI_RMSG_PAYLOADOFF(fragment->rmsg, DDSI_RDATA_SUBMSG_OFF(fragment));
        sample->number = (int64_t)ddsi_from_seqno(data->writerSN);
    }
    /* Fragments are in order and may overlap: each adds the bytes after the previous one. */
    uint32_t end = 0;
    for (; fragment != NULL; fragment = fragment->nextfrag) {
        uint32_t to = fragment->maxp1 < size ? fragment->maxp1 : (uint32_t)size;
        if (to <= end || fragment->min > end)
            continue;
        const unsigned char *payload = DDSI_RMSG_PAYLOADOFF(fragment->rmsg, DDSI_RDATA_PAYLOAD_OFF(fragment));
        memcpy(sample->cdr + end, payload + (end - fragment->min), to - end);
        end = to;
    }
    memset(sample->cdr + end, 0, size - end);
    return plain_or_gone(sample);
}

static struct ddsi_serdata *from_vectors(const struct ddsi_sertype *type, enum ddsi_serdata_kind kind,
                                         ddsrt_msg_iovlen_t count, const ddsrt_iovec_t *vectors, size_t size)
{
    if (size < HEAD || size > MOST)
        return NULL;
    struct sample *sample = sample_received(type, kind, size);
    if (sample == NULL)
        return NULL;
    size_t end = 0;
    for (ddsrt_msg_iovlen_t i = 0; i < count && end < size; i++) {
        size_t some = (size_t)vectors[i].iov_len;
        some = some < size - end ? some : size - end;
        memcpy(sample->cdr + end, vectors[i].iov_base, some);
        end += some;
    }
    memset(sample->cdr + end, 0, size - end);
    return plain_or_gone(sample);
}

static struct ddsi_serdata *from_keyhash(const struct ddsi_sertype *type, const struct ddsi_keyhash *hash)
{
    (void)hash;
    struct sample *sample = sample_new(type, SDK_KEY, HEAD);
    return sample == NULL ? NULL : &sample->c;
}

static struct ddsi_serdata *from_value(const struct ddsi_sertype *type, enum ddsi_serdata_kind kind, const void *value)
{
    (void)type;
    (void)kind;
    (void)value;
    return NULL;
}

static void to_bytes(const struct ddsi_serdata *d, size_t from, size_t count, void *buffer)
{
    memcpy(buffer, ((const struct sample *)d)->cdr + from, count);
}

static struct ddsi_serdata *to_bytes_lent(const struct ddsi_serdata *d, size_t from, size_t count, ddsrt_iovec_t *to)
{
    struct sample *sample = (struct sample *)d;
    to->iov_base = sample->cdr + from;
    to->iov_len = (ddsrt_iov_len_t)count;
    return ddsi_serdata_ref(d);
}

static void to_bytes_back(struct ddsi_serdata *d, const ddsrt_iovec_t *from)
{
    (void)from;
    ddsi_serdata_unref(d);
}

static bool to_value(const struct ddsi_serdata *d, void *value, void **buffer, void *end)
{
    (void)d;
    (void)value;
    (void)buffer;
    (void)end;
    return false;
}

static struct ddsi_serdata *to_key(const struct ddsi_serdata *d)
{
    struct sample *key = sample_new(d->type, SDK_KEY, HEAD);
    if (key == NULL)
        return NULL;
    key->c.type = NULL;
    return &key->c;
}

static bool key_to_value(const struct ddsi_sertype *type, const struct ddsi_serdata *d, void *value, void **buffer,
                         void *end)
{
    (void)type;
    return to_value(d, value, buffer, end);
}

static size_t sample_print(const struct ddsi_sertype *type, const struct ddsi_serdata *d, char *text, size_t size)
{
    (void)type;
    (void)d;
    if (size > 0)
        text[0] = 0;
    return 0;
}

static void sample_keyhash(const struct ddsi_serdata *d, struct ddsi_keyhash *hash, bool md5)
{
    (void)d;
    (void)md5;
    memset(hash, 0, sizeof *hash);
}

static const struct ddsi_serdata_ops sample_ops = {
    .eqkey = key_equal,
    .get_size = sample_size,
    .from_ser = from_fragments,
    .from_ser_iov = from_vectors,
    .from_keyhash = from_keyhash,
    .from_sample = from_value,
    .to_ser = to_bytes,
    .to_ser_ref = to_bytes_lent,
    .to_ser_unref = to_bytes_back,
    .to_sample = to_value,
    .to_untyped = to_key,
    .untyped_to_sample = key_to_value,
    .free = sample_free,
    .print = sample_print,
    .get_keyhash = sample_keyhash,
};

/* -- types: a name, and bytes -------------------------------------------------------------------- */

static void type_free(struct ddsi_sertype *type)
{
    held_free(((struct type *)type)->held);
    ddsi_sertype_fini(type);
    free(type);
}

static void type_zero(const struct ddsi_sertype *type, void *values, size_t count)
{
    (void)type;
    (void)values;
    (void)count;
}

static void type_realloc(void **pointers, const struct ddsi_sertype *type, void *old, size_t had, size_t count)
{
    (void)type;
    (void)old;
    (void)had;
    for (size_t i = 0; i < count; i++)
        pointers[i] = NULL;
}

static void type_free_values(const struct ddsi_sertype *type, void **pointers, size_t count, dds_free_op_t how)
{
    (void)type;
    (void)pointers;
    (void)count;
    (void)how;
}

static bool type_equal(const struct ddsi_sertype *a, const struct ddsi_sertype *b)
{
    /* The names were compared before. */
    return a->allowed_data_representation == b->allowed_data_representation;
}

static uint32_t type_hash(const struct ddsi_sertype *type)
{
    (void)type;
    return 0;
}

static const struct ddsi_sertype_ops type_ops = {
    .version = ddsi_sertype_v0,
    .free = type_free,
    .zero_samples = type_zero,
    .realloc_samples = type_realloc,
    .free_samples = type_free_values,
    .equal = type_equal,
    .hash = type_hash,
};

/* -- the interface for Rust; negative numbers are errors of the library ---------------------------- */

struct chappe_qos {
    int32_t reliable;
    int32_t transient_local;
    int32_t keep_last; /* 0: all */
    int32_t samples;
    int64_t deadline_ns; /* 0: none */
    const char *const *partitions;
    uint32_t partition_count;
    int32_t any_encoding;
    int32_t is_version_2; /* of a writer */
    int32_t is_keyless;
    int32_t is_batched; /* of a writer: samples are collected until `chappe_flush` or until a datagram is full */
    const char *fields; /* announced; empty: nothing */
};

struct chappe_end {
    dds_entity_t entity;
    dds_entity_t topic;
    const struct ddsi_sertype *type; /* lives as long as the topic */
    ddsi_guid_t guid;                /* in native byte order */
    bool writes;
    /* Of a writer: */
    struct hook *hook;
    int64_t written;
    int64_t acknowledged; /* the last number read */
    bool awaits;          /* whether a reader lacked samples then */
    uint32_t readers;     /* matched readers of other participants then */
    uint64_t retransmitted; /* bytes, until then */
};

struct chappe_sample {
    void *data;
    const uint8_t *bytes;
    size_t size;
    int64_t number;
    uint64_t writer;
    int64_t source_time_ns;
    int32_t encoding; /* the second byte of the encapsulation */
};

/* A remote or local end, or a participant: the kind determines which fields are set. */
struct chappe_found {
    uint8_t guid[16];
    int32_t is_alive;
    int32_t is_secure; /* a participant: announces DDS Security */
    int32_t reliable;
    int32_t durability;
    int64_t deadline_ns; /* negative: none */
    int32_t has_type;
    uint8_t type_hash[14];
    char partitions[512]; /* separated by line ends */
    char topic[256];
    char type_name[256];
    char name[129];
    char fields[4097]; /* what a writer or reader announces as its fields, or other data */
};

/* -- acknowledgements as events -------------------------------------------------------------------- */

/* The operations of a writer's history cache, of which one is ours. */
struct hook {
    struct ddsi_whc_ops ops; /* the first member: the cache points to it */
    const struct ddsi_whc_ops *original;
    atomic_int owners; /* the cache, and our end */
    ddsi_seqno_t acknowledged;
    atomic_bool was_called; /* since the number was last read */
    dds_entity_t writer;
    void (*ring)(dds_entity_t, void *);
    void *bell; /* NULL after the end of the writer; read and written with the writer's lock */
};

static void hook_free(struct hook *hook)
{
    if (hook != NULL && atomic_fetch_sub(&hook->owners, 1) == 1)
        free(hook);
}

/* The library calls this with the writer's lock, after it has recorded an acknowledgement or the end of a reader. */
static uint32_t acknowledged_hook(struct ddsi_whc *cache, ddsi_seqno_t through, struct ddsi_whc_state *state,
                                  struct ddsi_whc_node **removed)
{
    struct hook *hook = (struct hook *)cache->ops;
    uint32_t count = hook->original->remove_acked_messages(cache, through, state, removed);
    atomic_store(&hook->was_called, true);
    if (through > hook->acknowledged) {
        hook->acknowledged = through;
        if (hook->bell != NULL)
            hook->ring(hook->writer, hook->bell);
    }
    return count;
}

static void free_hook(struct ddsi_whc *cache)
{
    struct hook *hook = (struct hook *)cache->ops;
    cache->ops = hook->original;
    hook_free(hook);
    cache->ops->free(cache);
}

/* Returns the library's writer with its lock, or NULL if it has ended; `writer_unlock` must follow in either case. */
static struct ddsi_writer *writer_lock(const struct chappe_end *end)
{
    struct ddsi_domaingv *domain = ddsrt_atomic_ldvoidp(&end->type->gv);
    ddsi_thread_state_awake(ddsi_lookup_thread_state(), domain);
    struct ddsi_writer *writer = ddsi_entidx_lookup_writer_guid(domain->entity_index, &end->guid);
    if (writer != NULL)
        ddsrt_mutex_lock(&writer->e.lock);
    return writer;
}

static void writer_unlock(struct ddsi_writer *writer)
{
    if (writer != NULL)
        ddsrt_mutex_unlock(&writer->e.lock);
    ddsi_thread_state_asleep(ddsi_lookup_thread_state());
}

static int32_t hook_in(struct chappe_end *end, void (*ring)(dds_entity_t, void *), void *bell)
{
    struct hook *hook = calloc(1, sizeof *hook);
    if (hook == NULL)
        return DDS_RETCODE_OUT_OF_RESOURCES;
    struct ddsi_writer *writer = writer_lock(end);
    if (writer != NULL) {
        hook->original = writer->whc->ops;
        hook->ops = *hook->original;
        hook->ops.remove_acked_messages = acknowledged_hook;
        hook->ops.free = free_hook;
        hook->writer = end->entity;
        hook->ring = ring;
        hook->bell = bell;
        atomic_init(&hook->owners, 2);
        writer->whc->ops = &hook->ops;
        end->hook = hook;
    }
    writer_unlock(writer);
    if (writer != NULL)
        return 0;
    free(hook);
    return DDS_RETCODE_ALREADY_DELETED;
}

/* Afterwards the writer rings no more. */
static void hook_off(const struct chappe_end *end)
{
    struct ddsi_writer *writer = writer_lock(end);
    if (writer != NULL)
        ((struct hook *)writer->whc->ops)->bell = NULL;
    writer_unlock(writer);
}

static dds_listener_t *listener(void (*ring)(dds_entity_t, void *), void *bell)
{
    dds_listener_t *made = dds_create_listener(bell);
    dds_lset_data_available(made, ring);
    return made;
}

/* The domain of this process with that handle, if it exists; `dds_entity_unpin` must follow. */
static struct ddsi_domaingv *domain_pin(dds_entity_t handle, struct dds_entity **pinned)
{
    if (dds_entity_pin(handle, pinned) < 0)
        return NULL;
    return &(*pinned)->m_domain->gv;
}

/* The number by which governance and permissions name the domain. The library would compare them with the number of the
 * domain in this process, which other processes do not know. Nothing else reads it after the start. */
int32_t chappe_domain_number(dds_entity_t handle, uint32_t number)
{
    struct dds_entity *pinned;
    struct ddsi_domaingv *domain = domain_pin(handle, &pinned);
    if (domain == NULL)
        return DDS_RETCODE_ALREADY_DELETED;
    domain->config.domainId = number;
    dds_entity_unpin(pinned);
    return 0;
}

/* `domain` is the handle of a domain. */
dds_entity_t chappe_participant(dds_entity_t domain, void (*ring)(dds_entity_t, void *), void *bell, dds_entity_t found[3])
{
    static const dds_entity_t topics[3] = {DDS_BUILTIN_TOPIC_DCPSPARTICIPANT, DDS_BUILTIN_TOPIC_DCPSPUBLICATION,
                                           DDS_BUILTIN_TOPIC_DCPSSUBSCRIPTION};
    dds_domainid_t number;
    dds_return_t known = dds_get_domainid(domain, &number);
    if (known < 0)
        return known;
    dds_entity_t participant = dds_create_participant(number, NULL, NULL);
    if (participant < 0)
        return participant;
    dds_listener_t *told = listener(ring, bell);
    dds_entity_t failed = 0;
    for (int i = 0; i < 3 && failed == 0; i++) {
        found[i] = dds_create_reader(participant, topics[i], NULL, told);
        failed = found[i] < 0 ? found[i] : 0;
    }
    dds_delete_listener(told);
    if (failed == 0)
        return participant;
    dds_delete(participant);
    return failed;
}

/* A further reader of announced writers. */
dds_entity_t chappe_found_reader(dds_entity_t participant, void (*ring)(dds_entity_t, void *), void *bell)
{
    dds_listener_t *told = listener(ring, bell);
    dds_entity_t reader = dds_create_reader(participant, DDS_BUILTIN_TOPIC_DCPSPUBLICATION, NULL, told);
    dds_delete_listener(told);
    return reader;
}

static dds_qos_t *policies(const struct chappe_qos *of, bool writes)
{
    dds_qos_t *qos = dds_create_qos();
    /* A full reader drops its oldest sample: one that refuses samples blocks the library's thread for all topics. */
    int32_t depth = of->keep_last > 0 ? of->keep_last : writes ? 0 : of->samples;
    dds_history_kind_t history = depth > 0 ? DDS_HISTORY_KEEP_LAST : DDS_HISTORY_KEEP_ALL;
    /* Nothing blocks in the library: its caller waits instead. */
    dds_qset_reliability(qos, of->reliable ? DDS_RELIABILITY_RELIABLE : DDS_RELIABILITY_BEST_EFFORT, 0);
    dds_qset_durability(qos, of->transient_local ? DDS_DURABILITY_TRANSIENT_LOCAL : DDS_DURABILITY_VOLATILE);
    dds_qset_history(qos, history, depth > 0 ? depth : 1);
    dds_qset_writer_batching(qos, writes && of->is_batched);
    if (of->deadline_ns > 0)
        dds_qset_deadline(qos, of->deadline_ns);
    if (writes) /* late readers get all samples that are kept */
        dds_qset_durability_service(qos, 0, DDS_HISTORY_KEEP_LAST, of->keep_last > 0 ? of->keep_last : of->samples,
                                    DDS_LENGTH_UNLIMITED, DDS_LENGTH_UNLIMITED, DDS_LENGTH_UNLIMITED);
    /* A writer offers one, a reader may accept both. */
    dds_data_representation_id_t encodings[2] = {DDS_DATA_REPRESENTATION_XCDR1, DDS_DATA_REPRESENTATION_XCDR2};
    bool is_version_2 = writes && of->is_version_2;
    dds_qset_data_representation(qos, of->any_encoding && !writes ? 2 : 1, encodings + (is_version_2 ? 1 : 0));
    if (of->fields[0] != 0)
        dds_qset_userdata(qos, of->fields, strlen(of->fields));
    if (of->partition_count > 0)
        dds_qset_partition(qos, of->partition_count, (const char **)of->partitions);
    return qos;
}

static dds_entity_t topic(dds_entity_t participant, const char *name, const char *type_name,
                          const struct chappe_qos *of, const struct ddsi_sertype **type)
{
    struct type *own = calloc(1, sizeof *own);
    struct held *held = calloc(1, sizeof *held);
    if (own == NULL || held == NULL) {
        free(own);
        free(held);
        return DDS_RETCODE_OUT_OF_RESOURCES;
    }
    atomic_init(&held->owners, 1);
    own->held = held;
    struct ddsi_sertype *made = &own->c;
    ddsi_sertype_init_flags(made, type_name, &type_ops, &sample_ops,
                            of->is_keyless ? DDSI_SERTYPE_FLAG_TOPICKIND_NO_KEY : 0);
    made->allowed_data_representation =
        DDS_DATA_REPRESENTATION_FLAG_XCDR1 | (of->any_encoding ? DDS_DATA_REPRESENTATION_FLAG_XCDR2 : 0);
    /* The same one for all: a participant has the quality of a topic once, whatever types and encodings its ends have. */
    dds_data_representation_id_t encoding = DDS_DATA_REPRESENTATION_XCDR1;
    dds_qos_t *qos = dds_create_qos();
    dds_qset_data_representation(qos, 1, &encoding);
    dds_entity_t entity = dds_create_topic_sertype(participant, name, &made, qos, NULL, NULL);
    dds_delete_qos(qos);
    if (entity < 0) {
        ddsi_sertype_unref(made);
        return entity;
    }
    *type = made; /* the domain's type with this name: ours or an earlier one */
    return entity;
}

/* In the order of bytes of this machine. */
static ddsi_guid_t native(const uint8_t guid[16])
{
    uint32_t words[4];
    memcpy(words, guid, sizeof words);
    ddsi_guid_t made = {.entityid.u = ntohl(words[3])};
    for (int i = 0; i < 3; i++)
        made.prefix.u[i] = ntohl(words[i]);
    return made;
}

int32_t chappe_end_new(dds_entity_t participant, int32_t writes, const char *name, const char *type_name,
                       const struct chappe_qos *of, void (*ring)(dds_entity_t, void *), void *bell,
                       struct chappe_end **out)
{
    struct chappe_end *end = calloc(1, sizeof *end);
    if (end == NULL)
        return DDS_RETCODE_OUT_OF_RESOURCES;
    dds_qos_t *qos = policies(of, writes != 0);
    end->writes = writes != 0;
    end->topic = topic(participant, name, type_name, of, &end->type);
    end->entity = end->topic;
    if (end->topic > 0) {
        dds_listener_t *told = writes ? NULL : listener(ring, bell);
        end->entity = writes ? dds_create_writer(participant, end->topic, qos, NULL)
                             : dds_create_reader(participant, end->topic, qos, told);
        if (told != NULL)
            dds_delete_listener(told);
    }
    dds_delete_qos(qos);
    dds_guid_t guid;
    int32_t failed = end->entity < 0 ? end->entity : dds_get_guid(end->entity, &guid);
    if (failed < 0) {
        if (end->topic > 0)
            dds_delete(end->topic);
        free(end);
        return failed;
    }
    end->guid = native(guid.v);
    failed = writes ? hook_in(end, ring, bell) : 0;
    if (failed < 0) {
        dds_delete(end->entity);
        dds_delete(end->topic);
        free(end);
        return failed;
    }
    *out = end;
    return 0;
}

void chappe_end_free(struct chappe_end *end)
{
    if (end->writes)
        hook_off(end);
    dds_delete(end->entity);
    dds_delete(end->topic);
    hook_free(end->hook);
    free(end);
}

int32_t chappe_guid(dds_entity_t entity, uint8_t guid[16])
{
    dds_guid_t of;
    int32_t result = dds_get_guid(entity, &of);
    if (result >= 0)
        memcpy(guid, of.v, 16);
    return result;
}

dds_entity_t chappe_end_entity(const struct chappe_end *end)
{
    return end->entity;
}

/* Returns the number of the sample, or an error. */
int64_t chappe_write(struct chappe_end *end, int32_t encoding, const uint8_t *bytes, size_t size)
{
    if (size > MOST - HEAD)
        return DDS_RETCODE_BAD_PARAMETER;
    struct sample *sample = sample_new(end->type, SDK_DATA, (uint32_t)size + HEAD);
    if (sample == NULL)
        return DDS_RETCODE_OUT_OF_RESOURCES;
    uint32_t padding = (4u - (uint32_t)size % 4u) % 4u;
    sample->cdr[1] = (uint8_t)encoding;
    sample->cdr[3] = (uint8_t)padding;
    /* The library pads a sample that it sends whole, and not one that it sends in fragments. */
    sample->size += padding;
    memcpy(sample->cdr + HEAD, bytes, size);
    sample->number = end->written + 1;
    int32_t result = dds_writecdr(end->entity, &sample->c); /* takes the reference */
    if (result < 0)
        return result;
    return ++end->written;
}

/* A heartbeat that requests an acknowledgement of what was written since the last one, at most one in each of the library's
 * intervals, or NULL. The library itself requests one only after such an interval without a write. */
static struct ddsi_xmsg *heartbeat(struct ddsi_writer *writer)
{
    const struct ddsi_hbcontrol *sent = &writer->hbcontrol;
    ddsrt_mtime_t now = ddsrt_time_monotonic();
    if (writer->num_reliable_readers == 0 || sent->t_of_last_ackhb.v >= sent->t_of_last_write.v
        || now.v < sent->t_of_last_ackhb.v + writer->e.gv->config.const_hb_intv_sched)
        return NULL;
    struct ddsi_whc_state state;
    ddsi_whc_get_state(writer->whc, &state);
    return ddsi_writer_hbcontrol_create_heartbeat(writer, &state, now, DDSI_HBC_ACK_REQ_YES, 1);
}

/* Sends collected samples, and requests an acknowledgement. */
int32_t chappe_flush(const struct chappe_end *end)
{
    struct dds_writer *collects;
    int32_t result = dds_writer_lock(end->entity, &collects);
    if (result < 0)
        return result;
    struct ddsi_writer *writer = writer_lock(end);
    struct ddsi_xmsg *request = writer != NULL && writer->reliable ? heartbeat(writer) : NULL;
    if (writer != NULL)
        ddsrt_mutex_unlock(&writer->e.lock);
    if (request != NULL)
        ddsi_xpack_addmsg(collects->m_xp, request, 0);
    if (writer != NULL)
        ddsi_xpack_send(collects->m_xp, true);
    writer_unlock(NULL);
    dds_writer_unlock(collects);
    return writer != NULL ? 0 : DDS_RETCODE_ALREADY_DELETED;
}

/* Returns the last number acknowledged by all matched reliable readers. While one of them lacks samples, it changes only
 * when the library calls the hook. */
int64_t chappe_acknowledged(struct chappe_end *end)
{
    if (end->awaits && !atomic_load(&end->hook->was_called))
        return end->acknowledged;
    atomic_store(&end->hook->was_called, false);
    int64_t through = DDS_RETCODE_ALREADY_DELETED;
    struct ddsi_writer *writer = writer_lock(end);
    if (writer != NULL) {
        through = (int64_t)ddsi_writer_max_drop_seq(writer);
        end->readers = writer->num_readers;
        end->retransmitted = writer->rexmit_bytes;
    }
    writer_unlock(writer);
    end->acknowledged = through;
    end->awaits = through >= 0 && through < end->written;
    return through;
}

/* Returns the number of matched readers of other participants when that number was read. */
uint32_t chappe_readers(const struct chappe_end *end)
{
    return end->readers;
}

/* The bytes retransmitted until the last call of `chappe_acknowledged`. */
uint64_t chappe_retransmitted(const struct chappe_end *end)
{
    return end->retransmitted;
}

/* Writes an identification of each operation that a thread of the library runs in the domain at present, up to `most`, and
 * returns their number. */
uint32_t chappe_operations(const struct chappe_end *end, uint64_t *into, uint32_t most)
{
    const struct ddsi_domaingv *domain = ddsrt_atomic_ldvoidp(&end->type->gv);
    const struct ddsi_thread_states_list *list = ddsrt_atomic_ldvoidp(&thread_states.thread_states_head);
    uint32_t count = 0, index = 0;
    for (; list != NULL; list = list->next) {
        for (int i = 0; i < DDSI_THREAD_STATE_BATCH && count < most; i++, index++) {
            const struct ddsi_thread_state *thread = &list->thrst[i];
            ddsi_vtime_t time = ddsrt_atomic_ld32(&thread->vtime);
            ddsrt_atomic_fence_ldld();
            /* The library's clock of a thread changes with each operation. */
            if (thread->state != DDSI_THREAD_STATE_ZERO && !ddsi_vtime_asleep_p(time)
                && ddsrt_atomic_ldvoidp(&thread->gv) == domain)
                into[count++] = (uint64_t)index << 32 | time;
        }
    }
    return count;
}

int32_t chappe_take(const struct chappe_end *end, struct chappe_sample *into, uint32_t most)
{
    struct ddsi_serdata *taken[64];
    dds_sample_info_t infos[64];
    uint32_t some = most < 64 ? most : 64;
    int32_t count, kept = 0;
    /* Skip notices that a writer has left: samples may follow them. */
    do {
        count = dds_takecdr(end->entity, taken, some, infos, DDS_ANY_STATE);
        for (int32_t i = 0; i < count; i++) {
            struct sample *sample = (struct sample *)taken[i];
            uint32_t padding = sample->cdr[3] & 3u;
            if (!infos[i].valid_data || sample->c.kind != SDK_DATA || sample->size < HEAD + padding) {
                ddsi_serdata_unref(taken[i]);
                continue;
            }
            into[kept++] = (struct chappe_sample){
                .data = sample,
                .bytes = sample->cdr + HEAD,
                .size = sample->size - HEAD - padding,
                .number = sample->number,
                .writer = infos[i].publication_handle,
                .source_time_ns = infos[i].source_timestamp,
                .encoding = sample->cdr[1],
            };
        }
    } while (count > 0 && kept == 0);
    return count < 0 ? count : kept;
}

/* `data` of a taken sample. */
void chappe_sample_free(void *data)
{
    ddsi_serdata_unref(data);
}

/* Writes up to `most` handles of matching ends, and returns the number of all. */
int32_t chappe_matched(const struct chappe_end *end, uint64_t *handles, uint32_t most)
{
    return end->writes ? dds_get_matched_subscriptions(end->entity, handles, most)
                       : dds_get_matched_publications(end->entity, handles, most);
}

/* Reads the GUID of a matching end; returns 0 if it has left. */
int32_t chappe_matched_guid(const struct chappe_end *end, uint64_t handle, uint8_t guid[16])
{
    dds_builtintopic_endpoint_t *found = end->writes ? dds_get_matched_subscription_data(end->entity, handle)
                                                     : dds_get_matched_publication_data(end->entity, handle);
    if (found == NULL)
        return 0;
    memcpy(guid, found->key.v, 16);
    dds_builtintopic_free_endpoint(found);
    return 1;
}

/* Copies the data that an end announces for users, up to a zero and as far as there is room. */
static void copy_fields(char *to, size_t room, const dds_qos_t *qos)
{
    void *data = NULL;
    size_t size = 0;
    to[0] = 0;
    if (qos == NULL || !dds_qget_userdata(qos, &data, &size) || data == NULL)
        return;
    size = size < room ? size : room - 1;
    memcpy(to, data, size);
    to[size] = 0;
    dds_free(data);
}

/* The fields that a match announces; empty if it has left. */
void chappe_matched_fields(const struct chappe_end *end, uint64_t handle, char *into, size_t room)
{
    dds_builtintopic_endpoint_t *found = end->writes ? dds_get_matched_subscription_data(end->entity, handle)
                                                     : dds_get_matched_publication_data(end->entity, handle);
    copy_fields(into, room, found != NULL ? found->qos : NULL);
    if (found != NULL)
        dds_builtintopic_free_endpoint(found);
}

static void copy(char *to, size_t size, const char *from)
{
    strncpy(to, from == NULL ? "" : from, size - 1);
    to[size - 1] = 0;
}

/* In types.c. */
int32_t chappe_type_hash(const dds_builtintopic_endpoint_t *end, uint8_t hash[14]);

static void copy_partitions(struct chappe_found *found, const dds_qos_t *qos)
{
    uint32_t count = 0;
    char **names = NULL;
    if (qos == NULL || !dds_qget_partition(qos, &count, &names))
        return;
    size_t size = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strlen(names[i]);
        if (length + 1 < sizeof found->partitions - size) {
            memcpy(found->partitions + size, names[i], length);
            found->partitions[size + length] = '\n';
            size += length + 1;
        }
        dds_free(names[i]);
    }
    dds_free(names);
}

static void describe(struct chappe_found *found, const dds_qos_t *qos)
{
    dds_reliability_kind_t reliability = DDS_RELIABILITY_BEST_EFFORT;
    dds_durability_kind_t durability = DDS_DURABILITY_VOLATILE;
    dds_duration_t deadline = DDS_INFINITY, blocking;
    char *name = NULL;
    if (qos != NULL) {
        dds_qget_reliability(qos, &reliability, &blocking);
        dds_qget_durability(qos, &durability);
        dds_qget_deadline(qos, &deadline);
        if (dds_qget_entity_name(qos, &name) && name != NULL)
            copy(found->name, sizeof found->name, name);
        dds_free(name);
    }
    found->reliable = reliability == DDS_RELIABILITY_RELIABLE;
    found->durability = (int32_t)durability;
    found->deadline_ns = deadline == DDS_INFINITY ? -1 : deadline;
}

/* Whether this remote participant announces DDS Security. */
static bool announces_security(dds_entity_t reader, const uint8_t guid[16])
{
    struct dds_entity *pinned;
    struct ddsi_domaingv *domain = domain_pin(reader, &pinned);
    if (domain == NULL)
        return false;
    ddsi_guid_t of = native(guid);
    ddsi_thread_state_awake(ddsi_lookup_thread_state(), domain);
    const struct ddsi_proxy_participant *found = ddsi_entidx_lookup_proxy_participant_guid(domain->entity_index, &of);
    bool secure = found != NULL && (found->bes & DDSI_DISC_BUILTIN_ENDPOINT_PARTICIPANT_SECURE_ANNOUNCER) != 0;
    ddsi_thread_state_asleep(ddsi_lookup_thread_state());
    dds_entity_unpin(pinned);
    return secure;
}

/* Whether the library still has this participant: it removes one whose certificate or permissions have expired. */
int32_t chappe_participant_exists(dds_entity_t participant)
{
    struct dds_entity *pinned;
    struct ddsi_domaingv *domain = domain_pin(participant, &pinned);
    if (domain == NULL)
        return 0;
    ddsi_thread_state_awake(ddsi_lookup_thread_state(), domain);
    bool exists = ddsi_entidx_lookup_participant_guid(domain->entity_index, &pinned->m_guid) != NULL;
    ddsi_thread_state_asleep(ddsi_lookup_thread_state());
    dds_entity_unpin(pinned);
    return exists;
}

/* In the library's `ddsi_radmin.c`, of which `build.rs` makes it a part. */
extern uint64_t chappe_held_bytes(const struct ddsi_rbufpool *pool);

/* The bytes of the buffers that hold received packets. */
uint64_t chappe_received_bytes(dds_entity_t participant)
{
    struct dds_entity *pinned;
    struct ddsi_domaingv *domain = domain_pin(participant, &pinned);
    if (domain == NULL)
        return 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < domain->n_recv_threads; i++)
        bytes += chappe_held_bytes(domain->recv_threads[i].arg.rbpool);
    dds_entity_unpin(pinned);
    return bytes;
}

/* Removes a remote participant. Returns 0 if there is none. */
int32_t chappe_forget(dds_entity_t reader, const uint8_t guid[16])
{
    struct dds_entity *pinned;
    struct ddsi_domaingv *domain = domain_pin(reader, &pinned);
    if (domain == NULL)
        return 0;
    ddsi_guid_t of = native(guid);
    ddsi_thread_state_awake(ddsi_lookup_thread_state(), domain);
    int result = ddsi_delete_proxy_participant_by_guid(domain, &of, ddsrt_time_wallclock(), true);
    ddsi_thread_state_asleep(ddsi_lookup_thread_state());
    dds_entity_unpin(pinned);
    return result == 0;
}

/* Removes a remote writer or reader. Returns 0 if there is none. */
int32_t chappe_forget_end(dds_entity_t reader, const uint8_t guid[16], int32_t writes)
{
    struct dds_entity *pinned;
    struct ddsi_domaingv *domain = domain_pin(reader, &pinned);
    if (domain == NULL)
        return 0;
    ddsi_guid_t of = native(guid);
    ddsi_thread_state_awake(ddsi_lookup_thread_state(), domain);
    int result = writes ? ddsi_delete_proxy_writer(domain, &of, ddsrt_time_wallclock(), true)
                        : ddsi_delete_proxy_reader(domain, &of, ddsrt_time_wallclock(), true);
    ddsi_thread_state_asleep(ddsi_lookup_thread_state());
    dds_entity_unpin(pinned);
    return result == 0;
}

/* Reads the next discovery event of participants (`ends` 0) or ends (1): returns 1, 0 for none, or an error. */
int32_t chappe_found(dds_entity_t reader, int32_t ends, struct chappe_found *found)
{
    void *lent[1] = {NULL};
    dds_sample_info_t info[1];
    int32_t count = dds_take(reader, lent, info, 1, 1);
    if (count <= 0)
        return count;
    memset(found, 0, sizeof *found);
    found->is_alive = info[0].valid_data && info[0].instance_state == DDS_ALIVE_INSTANCE_STATE;
    if (ends) {
        const dds_builtintopic_endpoint_t *end = lent[0];
        memcpy(found->guid, end->key.v, 16);
        if (found->is_alive) {
            copy(found->topic, sizeof found->topic, end->topic_name);
            copy(found->type_name, sizeof found->type_name, end->type_name);
            describe(found, end->qos);
            copy_partitions(found, end->qos);
            copy_fields(found->fields, sizeof found->fields, end->qos);
            found->has_type = chappe_type_hash(end, found->type_hash);
        }
    } else {
        const dds_builtintopic_participant_t *participant = lent[0];
        memcpy(found->guid, participant->key.v, 16);
        if (found->is_alive) {
            describe(found, participant->qos);
            found->is_secure = announces_security(reader, found->guid);
        }
    }
    dds_return_loan(reader, lent, count);
    return 1;
}

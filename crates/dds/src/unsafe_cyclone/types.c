/* Types of others: what their writers announce (DDS-XTypes 1.3, clause 7.3.4), as a flat description for Rust.
 *
 * The library receives and checks type objects. Their structs in C depend on its headers, so each object is written
 * here to plain bytes, little-endian: a kind, then its parts. Types within it are named by their hash, and described
 * by a call of their own.
 */
#include <stdint.h>
#include <string.h>

#include <dds/dds.h>
#include <dds/ddsi/ddsi_typelib.h>
#include <dds/ddsi/ddsi_xt_typeinfo.h>

#include "ddsi__xt_impl.h"

#define HASH sizeof(DDS_XTypes_EquivalenceHash)
/* Collections within each other; reason: more have no use, and a stranger may announce any number. */
#define DEPTH 8
/* How long a call waits for an answer; reason: none may block, the answer is looked for again. */
#define BRIEFLY DDS_USECS(10)

struct out {
    uint8_t *bytes;
    size_t room;
    size_t size; /* beyond `room` if it did not fit */
};

static void put(struct out *out, const void *from, size_t count)
{
    if (out->size <= out->room && count <= out->room - out->size)
        memcpy(out->bytes + out->size, from, count);
    out->size += count;
}

static void put8(struct out *out, uint8_t value)
{
    put(out, &value, 1);
}

static void put32(struct out *out, uint32_t value)
{
    uint8_t bytes[4] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16), (uint8_t)(value >> 24)};
    put(out, bytes, sizeof bytes);
}

static void put_name(struct out *out, const char *name, size_t room)
{
    size_t size = strnlen(name, room);
    put32(out, (uint32_t)size);
    put(out, name, size);
}

static void put_id(struct out *out, const struct DDS_XTypes_TypeIdentifier *id, int depth);

static void put_plain_array(struct out *out, uint32_t dimensions, const DDS_XTypes_LBound *large,
                            const DDS_XTypes_SBound *small, const struct DDS_XTypes_TypeIdentifier *element, int depth)
{
    put8(out, DDS_XTypes_TK_ARRAY);
    put32(out, dimensions);
    for (uint32_t i = 0; i < dimensions; i++)
        put32(out, large != NULL ? large[i] : small[i]);
    put_id(out, element, depth);
}

static void put_plain_sequence(struct out *out, uint32_t bound, const struct DDS_XTypes_TypeIdentifier *element,
                               int depth)
{
    put8(out, DDS_XTypes_TK_SEQUENCE);
    put32(out, bound);
    put_id(out, element, depth);
}

/* A type within another one: a kind of the standard with its parts, EK_COMPLETE with a hash, or TK_NONE where there is no
 * description. */
static void put_id(struct out *out, const struct DDS_XTypes_TypeIdentifier *id, int depth)
{
    if (id == NULL || depth == 0) {
        put8(out, DDS_XTypes_TK_NONE);
        return;
    }
    switch (id->_d) {
    case DDS_XTypes_EK_COMPLETE:
        put8(out, DDS_XTypes_EK_COMPLETE);
        put(out, id->_u.equivalence_hash, HASH);
        return;
    case DDS_XTypes_TI_STRING8_SMALL:
    case DDS_XTypes_TI_STRING8_LARGE:
        put8(out, DDS_XTypes_TK_STRING8);
        return;
    case DDS_XTypes_TI_STRING16_SMALL:
    case DDS_XTypes_TI_STRING16_LARGE:
        put8(out, DDS_XTypes_TK_STRING16);
        return;
    case DDS_XTypes_TI_PLAIN_SEQUENCE_SMALL:
        put_plain_sequence(out, id->_u.seq_sdefn.bound, id->_u.seq_sdefn.element_identifier, depth - 1);
        return;
    case DDS_XTypes_TI_PLAIN_SEQUENCE_LARGE:
        put_plain_sequence(out, id->_u.seq_ldefn.bound, id->_u.seq_ldefn.element_identifier, depth - 1);
        return;
    case DDS_XTypes_TI_PLAIN_ARRAY_SMALL:
        put_plain_array(out, id->_u.array_sdefn.array_bound_seq._length, NULL,
                        id->_u.array_sdefn.array_bound_seq._buffer, id->_u.array_sdefn.element_identifier, depth - 1);
        return;
    case DDS_XTypes_TI_PLAIN_ARRAY_LARGE:
        put_plain_array(out, id->_u.array_ldefn.array_bound_seq._length, id->_u.array_ldefn.array_bound_seq._buffer,
                        NULL, id->_u.array_ldefn.element_identifier, depth - 1);
        return;
    case DDS_XTypes_TI_PLAIN_MAP_SMALL:
    case DDS_XTypes_TI_PLAIN_MAP_LARGE:
        put8(out, DDS_XTypes_TK_MAP);
        return;
    default:
        put8(out, id->_d <= DDS_XTypes_TK_CHAR16 ? id->_d : DDS_XTypes_TK_NONE);
    }
}

static void put_struct(struct out *out, const struct DDS_XTypes_CompleteStructType *of)
{
    put32(out, of->struct_flags);
    put_name(out, of->header.detail.type_name, sizeof of->header.detail.type_name);
    put_id(out, &of->header.base_type, DEPTH);
    put32(out, of->member_seq._length);
    for (uint32_t i = 0; i < of->member_seq._length; i++) {
        const struct DDS_XTypes_CompleteStructMember *member = &of->member_seq._buffer[i];
        put32(out, member->common.member_id);
        put32(out, member->common.member_flags);
        put_name(out, member->detail.name, sizeof member->detail.name);
        put_id(out, &member->common.member_type_id, DEPTH);
    }
}

static void put_enum(struct out *out, const struct DDS_XTypes_CompleteEnumeratedType *of)
{
    put32(out, of->header.common.bit_bound);
    put_name(out, of->header.detail.type_name, sizeof of->header.detail.type_name);
    put32(out, of->literal_seq._length);
    for (uint32_t i = 0; i < of->literal_seq._length; i++) {
        const struct DDS_XTypes_CompleteEnumeratedLiteral *literal = &of->literal_seq._buffer[i];
        put32(out, (uint32_t)literal->common.value);
        put_name(out, literal->detail.name, sizeof literal->detail.name);
    }
}

static void put_object(struct out *out, const struct DDS_XTypes_CompleteTypeObject *of)
{
    put8(out, of->_d);
    switch (of->_d) {
    case DDS_XTypes_TK_STRUCTURE:
        put_struct(out, &of->_u.struct_type);
        return;
    case DDS_XTypes_TK_ENUM:
        put_enum(out, &of->_u.enumerated_type);
        return;
    case DDS_XTypes_TK_BITMASK:
        put32(out, of->_u.bitmask_type.header.common.bit_bound);
        return;
    case DDS_XTypes_TK_ALIAS:
        put_id(out, &of->_u.alias_type.body.common.related_type, DEPTH);
        return;
    case DDS_XTypes_TK_SEQUENCE:
        put32(out, of->_u.sequence_type.header.common.bound);
        put_id(out, &of->_u.sequence_type.element.common.type, DEPTH);
        return;
    case DDS_XTypes_TK_ARRAY: {
        const DDS_XTypes_LBoundSeq *bounds = &of->_u.array_type.header.common.bound_seq;
        put32(out, bounds->_length);
        for (uint32_t i = 0; i < bounds->_length; i++)
            put32(out, bounds->_buffer[i]);
        put_id(out, &of->_u.array_type.element.common.type, DEPTH);
        return;
    }
    default: /* a kind without a description */
        return;
    }
}

/* Writes the hash of an announced end's complete type; returns 0 if it announces none. */
int32_t chappe_type_hash(const dds_builtintopic_endpoint_t *end, uint8_t hash[14])
{
    const dds_typeinfo_t *info = NULL;
    if (dds_builtintopic_get_endpoint_type_info((dds_builtintopic_endpoint_t *)end, &info) < 0 || info == NULL)
        return 0;
    const ddsi_typeid_t *id = ddsi_typeinfo_complete_typeid((const ddsi_typeinfo_t *)info);
    if (id == NULL || id->x._d != DDS_XTypes_EK_COMPLETE)
        return 0;
    memcpy(hash, id->x._u.equivalence_hash, HASH);
    return 1;
}

/* Describes the type with this hash in at most `room` bytes. Returns their number, 0 while the type is being requested
 * from its writer, or an error. */
int64_t chappe_type(dds_entity_t participant, const uint8_t hash[14], uint8_t *into, size_t room)
{
    struct ddsi_typeid id;
    memset(&id, 0, sizeof id);
    id.x._d = DDS_XTypes_EK_COMPLETE;
    memcpy(id.x._u.equivalence_hash, hash, HASH);
    dds_typeobj_t *object = NULL;
    int32_t result = dds_get_typeobj(participant, (const dds_typeid_t *)&id, BRIEFLY, &object);
    if (result == DDS_RETCODE_TIMEOUT)
        return 0;
    if (result < 0)
        return result;
    const struct ddsi_typeobj *found = (const struct ddsi_typeobj *)object;
    if (found == NULL || found->x._d != DDS_XTypes_EK_COMPLETE) {
        if (object != NULL)
            dds_free_typeobj(object);
        return DDS_RETCODE_UNSUPPORTED;
    }
    struct out out = {into, room, 0};
    put_object(&out, &found->x._u.complete);
    dds_free_typeobj(object);
    return out.size > room ? DDS_RETCODE_OUT_OF_RESOURCES : (int64_t)out.size;
}

// A writer or reader of numbered octets with Fast DDS: the peer of the example `dds_peer`.
//
//     fast write DOMAIN TOPIC COUNT BYTES [AUTHORITY NAME]
//     fast read DOMAIN TOPIC COUNT [AUTHORITY NAME]
//
// AUTHORITY is a directory of `chappe dds keys`, and NAME a participant admitted there. A writer stays until its input
// ends. The type is encoded by hand: Debian has no generator for Fast DDS.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>

using namespace eprosima::fastdds::dds;
using eprosima::fastrtps::Duration_t;
using eprosima::fastrtps::rtps::InstanceHandle_t;
using eprosima::fastrtps::rtps::SerializedPayload_t;
using std::chrono::steady_clock;

static constexpr auto PATIENCE = std::chrono::seconds(120);
// The encapsulation, then source, number, time and the length of the bytes (docs/reference/dds.md: plain CDR of version 1).
static constexpr uint32_t HEAD = 4, FIXED = 28, BYTES_MAX = 1 << 20;

struct Octets {
    uint32_t source = 1;
    uint64_t number = 0;
    int64_t time = 0;
    std::vector<uint8_t> data;
};

struct OctetsType : TopicDataType {
    OctetsType()
    {
        setName("chappe::Octets");
        m_typeSize = HEAD + FIXED + BYTES_MAX;
        m_isGetKeyDefined = true;
    }
    bool serialize(void *value, SerializedPayload_t *to) override
    {
        const auto &octets = *static_cast<Octets *>(value);
        const uint32_t count = static_cast<uint32_t>(octets.data.size()), none = 0;
        if (to->max_size < HEAD + FIXED + count)
            return false;
        const uint8_t head[HEAD] = {0, 1, 0, static_cast<uint8_t>((4 - count % 4) % 4)};
        uint8_t *at = to->data;
        const auto put = [&at](const void *from, size_t size) { memcpy(at, from, size), at += size; };
        put(head, HEAD), put(&octets.source, 4), put(&none, 4), put(&octets.number, 8), put(&octets.time, 8), put(&count, 4);
        put(octets.data.data(), count);
        to->length = HEAD + FIXED + count;
        to->encapsulation = CDR_LE;
        return true;
    }
    bool deserialize(SerializedPayload_t *from, void *value) override
    {
        auto &octets = *static_cast<Octets *>(value);
        if (from->length < HEAD + FIXED || from->data[1] != 1)
            return false;
        uint32_t count;
        memcpy(&octets.source, from->data + HEAD, 4);
        memcpy(&octets.number, from->data + HEAD + 8, 8);
        memcpy(&octets.time, from->data + HEAD + 16, 8);
        memcpy(&count, from->data + HEAD + 24, 4);
        if (count > from->length - HEAD - FIXED)
            return false;
        octets.data.assign(from->data + HEAD + FIXED, from->data + HEAD + FIXED + count);
        return true;
    }
    std::function<uint32_t()> getSerializedSizeProvider(void *value) override
    {
        return [value] { return HEAD + FIXED + static_cast<uint32_t>(static_cast<Octets *>(value)->data.size()); };
    }
    void *createData() override
    {
        return new Octets;
    }
    void deleteData(void *value) override
    {
        delete static_cast<Octets *>(value);
    }
    bool getKey(void *value, InstanceHandle_t *handle, bool) override
    {
        // RTPS 2.5, clause 9.6.4.8: a key below 16 bytes is its CDR, big-endian.
        *handle = InstanceHandle_t();
        for (int i = 0; i < 4; i++)
            handle->value[i] = static_cast<uint8_t>(static_cast<Octets *>(value)->source >> (24 - 8 * i));
        return true;
    }
};

static int fail(const std::string &why)
{
    std::cerr << why << std::endl;
    return 1;
}

static void secure(DomainParticipantQos &qos, const std::string &authority, const std::string &name)
{
    auto &properties = qos.properties().properties();
    const auto add = [&](const std::string &key, const std::string &value) {
        properties.emplace_back("dds.sec." + key, value);
    };
    const std::string common = "file://" + authority + "/", own = common + name + "/";
    add("auth.plugin", "builtin.PKI-DH");
    add("auth.builtin.PKI-DH.identity_ca", common + "ca.pem");
    add("auth.builtin.PKI-DH.identity_certificate", own + "certificate.pem");
    add("auth.builtin.PKI-DH.private_key", own + "private_key.pem");
    add("crypto.plugin", "builtin.AES-GCM-GMAC");
    add("access.plugin", "builtin.Access-Permissions");
    add("access.builtin.Access-Permissions.permissions_ca", common + "ca.pem");
    add("access.builtin.Access-Permissions.governance", common + "governance.p7s");
    add("access.builtin.Access-Permissions.permissions", own + "permissions.p7s");
}

static int write(DomainParticipant *participant, Topic *topic, uint64_t count, size_t bytes)
{
    DataWriterQos qos;
    qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
    qos.durability().kind = TRANSIENT_LOCAL_DURABILITY_QOS;
    qos.history().kind = KEEP_ALL_HISTORY_QOS;
    qos.endpoint().history_memory_policy = eprosima::fastrtps::rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
    DataWriter *writer = participant->create_publisher(PUBLISHER_QOS_DEFAULT)->create_datawriter(topic, qos);
    if (writer == nullptr)
        return fail("no writer");
    const auto until = steady_clock::now() + PATIENCE;
    PublicationMatchedStatus matched;
    while (writer->get_publication_matched_status(matched), matched.current_count == 0) {
        if (steady_clock::now() > until)
            return fail("no reader was found");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    Octets octets;
    for (uint64_t number = 1; number <= count; number++) {
        octets.number = number;
        octets.data.assign(bytes < FIXED ? 0 : bytes - FIXED, static_cast<uint8_t>(number % 251));
        if (!writer->write(&octets))
            return fail("not written");
    }
    if (writer->wait_for_acknowledgments(Duration_t(120, 0)) != ReturnCode_t::RETCODE_OK)
        return fail("some samples are not acknowledged");
    std::cout << "written " << count << std::endl;
    for (std::string line; std::getline(std::cin, line);)
        ;
    return 0;
}

static int read(DomainParticipant *participant, Topic *topic, uint64_t count)
{
    DataReaderQos qos;
    qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
    qos.durability().kind = TRANSIENT_LOCAL_DURABILITY_QOS;
    qos.history().kind = KEEP_ALL_HISTORY_QOS;
    qos.endpoint().history_memory_policy = eprosima::fastrtps::rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
    DataReader *reader = participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT)->create_datareader(topic, qos);
    if (reader == nullptr)
        return fail("no reader");
    std::cout << "ready" << std::endl;
    const auto until = steady_clock::now() + PATIENCE;
    uint64_t newest = 0, missing = 0, repeated = 0, bytes = 0;
    while (newest < count) {
        if (steady_clock::now() > until)
            return fail(std::to_string(newest) + " of " + std::to_string(count) + " came");
        reader->wait_for_unread_message(Duration_t(1, 0));
        Octets octets;
        SampleInfo info;
        while (reader->take_next_sample(&octets, &info) == ReturnCode_t::RETCODE_OK) {
            if (!info.valid_data)
                continue;
            for (uint8_t byte : octets.data)
                if (byte != octets.number % 251)
                    return fail("sample " + std::to_string(octets.number) + " has different content");
            if (octets.number <= newest)
                repeated++;
            else
                missing += octets.number - newest - 1, newest = octets.number;
            bytes += FIXED + octets.data.size();
        }
    }
    std::cout << "read " << count << " missing " << missing << " repeated " << repeated << " bytes " << bytes << std::endl;
    return 0;
}

int main(int argc, char **argv)
{
    std::vector<std::string> words(argv + 1, argv + argc);
    const bool writes = !words.empty() && words[0] == "write";
    const size_t needed = writes ? 5 : 4;
    if (words.size() != needed && words.size() != needed + 2)
        return fail("unknown arguments: the usage is at the top of the source");
    DomainParticipantQos qos;
    // No shared memory: the peer has none.
    qos.transport().use_builtin_transports = false;
    qos.transport().user_transports.push_back(std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>());
    // Loopback has no multicast: participants are looked for at its address.
    eprosima::fastrtps::rtps::Locator_t loopback;
    eprosima::fastrtps::rtps::IPLocator::setIPv4(loopback, "127.0.0.1");
    qos.wire_protocol().builtin.initialPeersList.push_back(loopback);
    if (words.size() > needed)
        secure(qos, words[needed], words[needed + 1]);
    auto *participant = DomainParticipantFactory::get_instance()->create_participant(std::stoul(words[1]), qos);
    if (participant == nullptr)
        return fail("no participant");
    TypeSupport type(new OctetsType);
    type.register_type(participant);
    Topic *topic = participant->create_topic(words[2], type.get_type_name(), TOPIC_QOS_DEFAULT);
    const uint64_t count = std::stoull(words[3]);
    return writes ? write(participant, topic, count, std::stoul(words[4])) : read(participant, topic, count);
}

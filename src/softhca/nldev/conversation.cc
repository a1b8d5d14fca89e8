// SPDX-License-Identifier: BSD-2-Clause
// Answers requests: see conversation.h.
#include "softhca/nldev/conversation.h"

#include <cerrno>
#include <cstring>
#include <new>

#include "softhca/base/assert.h"
#include "softhca/device/identity.h"
#include "softhca/device/port.h"
#include "softhca/nldev/abi.h"
#include "softhca/nldev/device.h"
#include "softhca/nldev/resources.h"

namespace softhca::nldev {
namespace {

using device::Segment;

constexpr int kAnswered = -1;  // a dump was started: neither an error nor an acknowledgement

constexpr std::uint16_t message_type(std::uint16_t command) noexcept {
    return static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
}

bool can_dump(std::uint16_t command) noexcept {
    return command == RDMA_NLDEV_CMD_GET || command == RDMA_NLDEV_CMD_PORT_GET ||
           command == RDMA_NLDEV_CMD_RES_GET || resource_of(command) != nullptr;
}

bool is_known(std::uint16_t command) noexcept {
    return can_dump(command) || command == RDMA_NLDEV_CMD_GET_CHARDEV ||
           command == RDMA_NLDEV_CMD_SYS_GET;
}

// The kernel has one errno for a missing, a malformed and a wrong device index.
int check_device(const Attributes& attributes, const Segment* segment,
                 std::uint32_t* device) noexcept {
    const auto index = attributes.u32(RDMA_NLDEV_ATTR_DEV_INDEX);
    if (!attributes.valid() || !index || !segment || *index >= device::device_count(*segment))
        return EINVAL;
    *device = *index;
    return 0;
}

// As nldev.c: res_get_common_doit.
int fill_resource(const Resource& resource, const Attributes& attributes, const Segment& segment,
                  std::uint32_t device, Datagram* out) {
    const auto number = attributes.u32(resource.number_attribute);
    const auto port = attributes.u32(RDMA_NLDEV_ATTR_PORT_INDEX);
    if (!number || (port && !device::has_port(segment, *port)) ||
        port.has_value() == resource.per_device)
        return EINVAL;
    for (std::uint32_t i = 0; i < resource.end(segment); ++i) {
        if (!is_on(resource, segment, device, i) || resource.number(segment, i) != *number)
            continue;
        if (port && resource.port(segment, i) != *port) return EAGAIN;
        fill_handle(device, out);
        resource.fill(segment, i, out);
        return 0;
    }
    return ENOENT;
}

int fill_chardev(const Attributes& attributes, const Segment* segment, Datagram* out) noexcept {
    const auto type = attributes.text(RDMA_NLDEV_ATTR_CHARDEV_TYPE);
    const auto port = attributes.u32(RDMA_NLDEV_ATTR_PORT_INDEX);
    const bool of_device = attributes.u32(RDMA_NLDEV_ATTR_DEV_INDEX).has_value();
    if (!attributes.valid() || !type) return EINVAL;
    std::uint32_t device = 0;
    if (of_device && check_device(attributes, segment, &device) != 0) return EINVAL;
    if (port && (!of_device || !device::has_port(*segment, *port))) return EINVAL;
    if (*type == device::kManagerDevice && !of_device) {
        fill_manager_device(out);
        return 0;
    }
    if (*type != "uverbs") return ENOENT;
    if (!of_device)
        return EOPNOTSUPP;  // devices have a uverbs character device; the subsystem none
    fill_character_device(device, out);
    return 0;
}

int fill_answer(std::uint16_t command, const Attributes& attributes, const Segment* segment,
                Datagram* out) {
    if (command == RDMA_NLDEV_CMD_GET_CHARDEV) return fill_chardev(attributes, segment, out);
    if (command == RDMA_NLDEV_CMD_SYS_GET) {
        if (!attributes.valid()) return EINVAL;
        fill_subsystem(out);
        return 0;
    }
    std::uint32_t device = 0;
    if (const int error = check_device(attributes, segment, &device)) return error;
    switch (command) {
        case RDMA_NLDEV_CMD_GET:
            fill_device(*segment, device, out);
            return 0;
        case RDMA_NLDEV_CMD_PORT_GET: {
            const auto port = attributes.u32(RDMA_NLDEV_ATTR_PORT_INDEX);
            if (!port || !device::has_port(*segment, *port)) return EINVAL;
            fill_port(*segment, device, *port, out);
            return 0;
        }
        case RDMA_NLDEV_CMD_RES_GET:
            fill_summary(*segment, device, out);
            return 0;
        default:
            SOFTHCA_ASSERT(resource_of(command) != nullptr, "answer() knows the command");
            return fill_resource(*resource_of(command), attributes, *segment, device, out);
    }
}

// Writes one message of as many objects as fit, from *next on. Returns false if there are no more.
bool fill_resources(const Resource& resource, const Segment& segment, std::uint32_t device,
                    std::uint32_t physical_port, std::uint32_t* next, Datagram* out) {
    const std::uint32_t end = resource.end(segment);
    bool filled = false;
    fill_handle(device, out);
    const Datagram::Mark table = out->begin_nest(resource.table);
    for (; *next < end; ++*next) {
        if (!is_on(resource, segment, device, *next)) continue;
        if (physical_port && resource.port(segment, *next) != physical_port) continue;
        const Datagram::Mark entry = out->begin_nest(resource.entry);
        resource.fill(segment, *next, out);
        if (out->overflowed()) {
            SOFTHCA_ASSERT(entry > table);
            out->take_back(entry);
            break;
        }
        out->end_nest(entry);
        filled = true;
    }
    out->end_nest(table);
    return filled;
}

}  // namespace

bool Conversation::request(std::span<const std::byte> datagram, const Recipient& recipient,
                           const Segment* segment) noexcept {
    try {
        while (datagram.size() >= sizeof(nlmsghdr)) {
            nlmsghdr header;
            std::memcpy(&header, datagram.data(), sizeof header);
            if (header.nlmsg_len < sizeof header || header.nlmsg_len > datagram.size()) return true;
            if (unread_.size() >= kMostUnread) return false;
            const auto whole = datagram.first(header.nlmsg_len);
            const Request request{header, whole, Attributes(whole.subspan(sizeof header))};
            const int error = answer(request, recipient, segment);
            if (error > 0 || (error == 0 && (header.nlmsg_flags & NLM_F_ACK)))
                acknowledge(request, recipient, error);
            datagram = datagram.subspan(std::min(aligned(header.nlmsg_len), datagram.size()));
        }
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

int Conversation::answer(const Request& request, const Recipient& recipient,
                         const Segment* segment) {
    const std::uint16_t type = request.header.nlmsg_type;
    // Control messages and answers get no answer.
    if (!(request.header.nlmsg_flags & NLM_F_REQUEST) || type < NLMSG_MIN_TYPE) return 0;
    if (RDMA_NL_GET_CLIENT(type) != RDMA_NL_NLDEV) return EINVAL;
    if (!is_known(RDMA_NL_GET_OP(type))) return EOPNOTSUPP;
    return request.header.nlmsg_flags & NLM_F_DUMP ? start_dump(request, recipient, segment)
                                                   : answer_at_once(request, recipient, segment);
}

int Conversation::answer_at_once(const Request& request, const Recipient& recipient,
                                 const Segment* segment) {
    const std::uint16_t command = RDMA_NL_GET_OP(request.header.nlmsg_type);
    Datagram out;
    const Datagram::Mark message =
        out.begin_message(message_type(command), 0, request.header.nlmsg_seq, recipient.port);
    if (const int error = fill_answer(command, request.attributes, segment, &out)) return error;
    if (out.overflowed()) return EMSGSIZE;
    SOFTHCA_ASSERT(message == 0, "one message a datagram");
    out.end_message(message);
    unread_.push_back(out.release());
    SOFTHCA_ASSERT(!unread_.back().empty() && unread_.size() <= kMostUnread + 1);
    return 0;
}

// Starts a dump. Its NLMSG_DONE reports errors in the request.
int Conversation::start_dump(const Request& request, const Recipient& recipient,
                             const Segment* segment) {
    const std::uint16_t command = RDMA_NL_GET_OP(request.header.nlmsg_type);
    if (!can_dump(command)) return EINVAL;
    if (dump_) return EBUSY;
    Dump dump{command, request.header.nlmsg_seq, recipient.port, 0, 0, 0, 0};
    const Attributes& attributes = request.attributes;
    if (resource_of(command) || command == RDMA_NLDEV_CMD_PORT_GET) {
        dump.error = check_device(attributes, segment, &dump.device);
        const auto port = attributes.u32(RDMA_NLDEV_ATTR_PORT_INDEX);
        if (port && resource_of(command)) {
            if (!segment || !device::has_port(*segment, *port)) dump.error = EINVAL;
            dump.physical_port = resource_of(command)->per_device ? 0 : *port;
        }
    }
    dump_ = dump;
    SOFTHCA_ASSERT(dump_->next == 0 && dump_->error >= 0);
    return kAnswered;
}

void Conversation::acknowledge(const Request& request, const Recipient& recipient, int error) {
    SOFTHCA_ASSERT(error >= 0);
    const bool whole = error && !recipient.capped_acks;
    const std::size_t copied = whole ? request.whole.size() : sizeof(nlmsghdr);
    Datagram out(sizeof(nlmsghdr) + sizeof(nlmsgerr) + aligned(copied));
    const Datagram::Mark message = out.begin_message(NLMSG_ERROR, whole ? 0 : NLM_F_CAPPED,
                                                     request.header.nlmsg_seq, recipient.port);
    const int negative = -error;
    out.raw(&negative, sizeof negative);
    out.raw(request.whole.data(), copied);
    out.end_message(message);
    SOFTHCA_ASSERT(!out.overflowed(), "it was made as large as the message");
    unread_.push_back(out.release());
}

// Returns false with the last datagram.
bool Conversation::continue_dump(Dump* dump, const Segment* segment, Datagram* out) noexcept {
    const auto end = [&](int error) {
        out->take_back(0);
        const Datagram::Mark done =
            out->begin_message(NLMSG_DONE, NLM_F_MULTI, dump->sequence, dump->port);
        const int negative = -error;
        out->raw(&negative, sizeof negative);
        out->end_message(done);
        return false;
    };
    SOFTHCA_ASSERT(can_dump(dump->command) && out->empty());
    if (dump->error || !segment) return end(dump->error);
    try {
        const Datagram::Mark message = out->begin_message(message_type(dump->command), NLM_F_MULTI,
                                                          dump->sequence, dump->port);
        if (const Resource* resource = resource_of(dump->command)) {
            if (!fill_resources(*resource, *segment, dump->device, dump->physical_port, &dump->next,
                                out))
                return end(0);
        } else if (dump->command == RDMA_NLDEV_CMD_PORT_GET) {
            if (!device::has_port(*segment, ++dump->next)) return end(0);
            fill_port(*segment, dump->device, dump->next, out);
        } else {
            const std::uint32_t device = dump->next++;
            if (device >= device::device_count(*segment)) return end(0);
            if (dump->command == RDMA_NLDEV_CMD_GET)
                fill_device(*segment, device, out);
            else
                fill_summary(*segment, device, out);
        }
        out->end_message(message);
        return true;
    } catch (const std::bad_alloc&) {
        return end(ENOMEM);
    }
}

bool Conversation::next(const Segment* segment, std::vector<std::byte>* out) noexcept {
    if (!unread_.empty()) {
        *out = std::move(unread_.front());
        unread_.pop_front();
        return true;
    }
    if (!dump_) return false;
    try {
        Datagram datagram;
        if (!continue_dump(&*dump_, segment, &datagram)) dump_.reset();
        SOFTHCA_ASSERT(!datagram.overflowed());
        *out = datagram.release();
        SOFTHCA_ASSERT(!out->empty());
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

void Conversation::give_back(std::vector<std::byte> datagram) noexcept {
    SOFTHCA_ASSERT(!datagram.empty());
    try {
        unread_.push_front(std::move(datagram));
    } catch (const std::bad_alloc&) {
        // The datagram is lost, as when the kernel is out of memory. Ending the dump keeps the
        // reader from waiting for the rest.
        dump_.reset();
    }
}

}  // namespace softhca::nldev

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;
import org.zeromq.ZMsg;

/**
 * JeroMQ as a peer.
 *
 * JeroPeer ROUTER REP PUB [SERVER_KEY PUBLIC_KEY SECRET_KEY]   connects to ours, checks, prints one line
 * JeroPeer bind [PUBLIC_KEY SECRET_KEY]                         a ROUTER that echoes and a PUB, until it is killed
 * JeroPeer node DIRECTORY PUB STREAM COUNT [keys as above]     prints what a node's directory and PUB give, as XML
 */
public final class JeroPeer {
    private static final int PATIENCE_MS = 30_000;
    private static final int WAKE_MS = 250;

    private JeroPeer() {
    }

    public static void main(String[] arguments) throws Exception {
        try (ZContext context = new ZContext()) {
            Thread waker = new Thread(() -> wake(context));
            waker.start();
            try {
                if (arguments[0].equals("bind")) {
                    bind(context, Arrays.copyOfRange(arguments, 1, arguments.length));
                } else if (arguments[0].equals("node")) {
                    node(context, Arrays.copyOfRange(arguments, 1, arguments.length));
                } else {
                    connect(context, arguments);
                }
            } finally {
                waker.interrupt();
                waker.join();
            }
        }
    }

    /**
     * Wakes JeroMQ's I/O thread now and then, by a port that nobody connects to. A handshake of JeroMQ sometimes stops in
     * its middle until something else does (its pull request 1022; its handshake interval does not).
     */
    private static void wake(ZContext context) {
        try {
            while (true) {
                try (ZMQ.Socket socket = context.createSocket(SocketType.PUB)) {
                    socket.bindToRandomPort("tcp://127.0.0.1");
                }
                Thread.sleep(WAKE_MS);
            }
        } catch (InterruptedException end) {
            // It is at its end.
        }
    }

    private static ZMQ.Socket socket(ZContext context, SocketType type) {
        ZMQ.Socket socket = context.createSocket(type);
        socket.setReceiveTimeOut(PATIENCE_MS);
        socket.setSendTimeOut(PATIENCE_MS);
        socket.setLinger(0);
        // A ROUTER drops at its high-water mark without a word.
        socket.setHWM(0);
        return socket;
    }

    private static ZMQ.Socket connected(ZContext context, SocketType type, String endpoint, String[] keys) {
        ZMQ.Socket socket = socket(context, type);
        if (keys.length > 0) {
            socket.setCurveServerKey(ZMQ.Curve.z85Decode(keys[0]));
            socket.setCurvePublicKey(ZMQ.Curve.z85Decode(keys[1]));
            socket.setCurveSecretKey(ZMQ.Curve.z85Decode(keys[2]));
        }
        socket.connect(endpoint);
        return socket;
    }

    private static void hold(boolean condition, String what) {
        if (!condition) {
            throw new IllegalStateException(what);
        }
    }

    private static String ask(ZMQ.Socket req, String question) {
        req.send(question);
        return req.recvStr();
    }

    private static void node(ZContext context, String[] arguments) {
        String[] keys = Arrays.copyOfRange(arguments, 4, arguments.length);
        ZMQ.Socket directory = connected(context, SocketType.REQ, arguments[0], keys);
        print("list", ask(directory, ""));
        print("named", ask(directory, arguments[2]));
        ZMQ.Socket sub = connected(context, SocketType.SUB, arguments[1], keys);
        String topic = arguments[2] + " xml";
        sub.subscribe(topic.getBytes(StandardCharsets.US_ASCII));
        for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
            ZMsg message = ZMsg.recvMsg(sub);
            hold(message != null, "no element within the time");
            hold(message.size() == 2, "no message of two frames");
            hold(message.popString().equals(topic), "another topic");
            print("element", message.pop().getString(StandardCharsets.UTF_8));
        }
    }

    private static void print(String kind, String documents) {
        documents.lines().forEach(line -> System.out.println(kind + " " + line));
    }

    private static void connect(ZContext context, String[] arguments) throws Exception {
        String[] keys = Arrays.copyOfRange(arguments, 3, arguments.length);
        ZMQ.Socket dealer = connected(context, SocketType.DEALER, arguments[0], keys);
        for (int start = 0; start < 2_000; start += 200) {
            for (int number = start; number < start + 200; number++) {
                hold(ZMsg.newStringMsg(String.valueOf(number), "", "x".repeat(number % 300)).send(dealer), "not sent");
            }
            for (int number = start; number < start + 200; number++) {
                ZMsg message = ZMsg.recvMsg(dealer);
                hold(message != null && message.size() == 3, "no echo of " + number);
                hold(message.popString().equals(String.valueOf(number)), "another order");
                message.pop();
                hold(message.pop().size() == number % 300, "another size");
            }
        }
        ZMQ.Socket req = connected(context, SocketType.REQ, arguments[1], keys);
        for (int number = 0; number < 200; number++) {
            hold(ask(req, "echo " + number).equals("echo " + number), "another answer");
        }
        ZMQ.Socket sub = connected(context, SocketType.SUB, arguments[2], keys);
        sub.subscribe("room/".getBytes(StandardCharsets.US_ASCII));
        long end = System.nanoTime() + PATIENCE_MS * 1_000_000L;
        while (!ask(req, "subscriptions").equals("room/")) {
            hold(System.nanoTime() < end, "the subscription did not arrive");
            Thread.sleep(10);
        }
        ask(req, "publish roof 5 10");
        hold(ask(req, "publish room/9 300 100").equals("300"), "one subscriber was to be reached");
        Set<String> numbers = new HashSet<>();
        for (int number = 0; number < 300; number++) {
            ZMsg message = ZMsg.recvMsg(sub);
            hold(message != null && message.popString().equals("room/9"), "another topic");
            numbers.add(message.popString());
        }
        hold(numbers.size() == 300, "publications are missing");
        System.out.println("JeroMQ " + ZMQ.getVersionString() + " connects: DEALER 2000, REQ 200, SUB 300");
    }

    private static ZMQ.Socket bound(ZContext context, SocketType type, String[] keys) {
        ZMQ.Socket socket = socket(context, type);
        if (keys.length > 0) {
            socket.setAsServerCurve(true);
            socket.setCurvePublicKey(ZMQ.Curve.z85Decode(keys[0]));
            socket.setCurveSecretKey(ZMQ.Curve.z85Decode(keys[1]));
        }
        socket.bind("tcp://127.0.0.1:*");
        return socket;
    }

    private static void bind(ZContext context, String[] keys) {
        ZMQ.Socket router = bound(context, SocketType.ROUTER, keys);
        ZMQ.Socket pub = bound(context, SocketType.PUB, keys);
        System.out.println(router.getLastEndpoint() + " " + pub.getLastEndpoint());
        System.out.flush();
        router.setReceiveTimeOut(10);
        for (int number = 0; ; number++) {
            ZMsg message = ZMsg.recvMsg(router);
            while (message != null) {
                message.send(router);
                message = ZMsg.recvMsg(router, ZMQ.DONTWAIT);
            }
            ZMsg.newStringMsg("room", String.valueOf(number)).send(pub);
        }
    }
}

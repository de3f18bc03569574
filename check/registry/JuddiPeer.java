import javax.xml.ws.Endpoint;
import org.apache.juddi.Registry;
import org.apache.juddi.api.impl.UDDIv2InquiryImpl;
import org.apache.juddi.api.impl.UDDIv2PublishImpl;

/** jUDDI's UDDI v2 on the loopback: JuddiPeer PORT. It runs until it is killed. */
public final class JuddiPeer {
    public static void main(String[] arguments) throws Exception {
        String base = "http://127.0.0.1:" + arguments[0];
        Registry.start();
        Endpoint.publish(base + "/inquiry", new UDDIv2InquiryImpl());
        Endpoint.publish(base + "/publish", new UDDIv2PublishImpl());
        System.out.println("ready");
        Thread.currentThread().join();
    }
}

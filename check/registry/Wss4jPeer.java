import java.io.ByteArrayInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import javax.xml.parsers.DocumentBuilderFactory;
import javax.xml.transform.TransformerFactory;
import javax.xml.transform.dom.DOMSource;
import javax.xml.transform.stream.StreamResult;
import org.apache.wss4j.common.WSEncryptionPart;
import org.apache.wss4j.common.crypto.Crypto;
import org.apache.wss4j.common.crypto.CryptoFactory;
import org.apache.wss4j.dom.WSConstants;
import org.apache.wss4j.dom.engine.WSSConfig;
import org.apache.wss4j.dom.engine.WSSecurityEngine;
import org.apache.wss4j.dom.handler.RequestData;
import org.apache.wss4j.dom.message.WSSecHeader;
import org.apache.wss4j.dom.message.WSSecSignature;
import org.apache.wss4j.dom.message.WSSecTimestamp;
import org.w3c.dom.Document;
import org.w3c.dom.Node;
import org.w3c.dom.NodeList;

/**
 * Signs and verifies messages with WSS4J: sign|verify STORE ALIAS MESSAGE..., stores are PKCS#12 with the password
 * "password". A signed message goes to MESSAGE.signed; for each verified one a line says accepted or refused.
 */
public final class Wss4jPeer {
    private static final String PASSWORD = "password";
    private static final String ADDRESSING = "http://www.w3.org/2005/08/addressing";

    public static void main(String[] arguments) throws Exception {
        WSSConfig.init();
        Properties properties = new Properties();
        String merlin = "org.apache.wss4j.crypto.merlin.";
        properties.put("org.apache.wss4j.crypto.provider", "org.apache.wss4j.common.crypto.Merlin");
        String store = arguments[0].equals("sign") ? "keystore" : "truststore";
        properties.put(merlin + store + ".type", "PKCS12");
        properties.put(merlin + store + ".file", arguments[1]);
        properties.put(merlin + store + ".password", PASSWORD);
        Crypto crypto = CryptoFactory.getInstance(properties);
        for (int index = 3; index < arguments.length; index++) {
            Path message = Path.of(arguments[index]);
            if (arguments[0].equals("sign")) {
                sign(crypto, arguments[2], message);
            } else {
                verify(crypto, message);
            }
        }
    }

    private static Document parse(Path message) throws Exception {
        DocumentBuilderFactory factory = DocumentBuilderFactory.newInstance();
        factory.setNamespaceAware(true);
        return factory.newDocumentBuilder().parse(new ByteArrayInputStream(Files.readAllBytes(message)));
    }

    private static void sign(Crypto crypto, String alias, Path message) throws Exception {
        Document document = parse(message);
        WSSecHeader header = new WSSecHeader(document);
        header.insertSecurityHeader();
        WSSecTimestamp timestamp = new WSSecTimestamp(header);
        timestamp.setTimeToLive(60);
        timestamp.build();
        WSSecSignature signature = new WSSecSignature(header);
        signature.setUserInfo(alias, PASSWORD);
        signature.setKeyIdentifierType(WSConstants.BST_DIRECT_REFERENCE);
        boolean isRsa = crypto.getPrivateKey(alias, PASSWORD).getAlgorithm().equals("RSA");
        signature.setSignatureAlgorithm("http://www.w3.org/2001/04/xmldsig-more#" + (isRsa ? "rsa" : "ecdsa") + "-sha256");
        signature.setDigestAlgo(WSConstants.SHA256);
        String soap = document.getDocumentElement().getNamespaceURI();
        signature.getParts().add(new WSEncryptionPart("Body", soap, ""));
        signature.getParts().add(new WSEncryptionPart("Timestamp", WSConstants.WSU_NS, ""));
        NodeList headers = document.getElementsByTagNameNS(ADDRESSING, "*");
        for (int index = 0; index < headers.getLength(); index++) {
            Node block = headers.item(index);
            if (block.getParentNode().getLocalName().equals("Header")) {
                signature.getParts().add(new WSEncryptionPart(block.getLocalName(), ADDRESSING, ""));
            }
        }
        DOMSource signed = new DOMSource(signature.build(crypto));
        StreamResult result = new StreamResult(new java.io.File(message + ".signed"));
        TransformerFactory.newInstance().newTransformer().transform(signed, result);
    }

    private static void verify(Crypto crypto, Path message) throws Exception {
        RequestData data = new RequestData();
        data.setSigVerCrypto(crypto);
        try {
            new WSSecurityEngine().processSecurityHeader(parse(message), data);
            System.out.println("accepted");
        } catch (Exception error) {
            System.out.println("refused: " + error.getMessage());
        }
    }
}
